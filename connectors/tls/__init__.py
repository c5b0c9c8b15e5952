"""The server's side of TLS, for connectors that listen."""
