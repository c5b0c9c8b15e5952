"""The short way of usual requests: from the parser into the inbox, without an ASGI task."""
