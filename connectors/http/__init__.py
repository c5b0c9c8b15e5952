"""Models fetched over HTTP."""
