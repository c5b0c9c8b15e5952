"""One client connection: TCP, TLS, login, keep-alive, subscriptions, coming back. Used by source and sink."""
