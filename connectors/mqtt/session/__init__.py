"""One client connection: TCP, TLS, login, keep-alive, subscriptions, reconnecting. Used by source and sink."""
