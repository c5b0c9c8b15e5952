"""`streamer.definition.service` under the name that it had: plug-ins and scripts import from here."""

from streamer.definition.service import Service

__all__ = ["Service"]
