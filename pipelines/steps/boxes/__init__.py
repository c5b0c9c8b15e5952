"""Steps on boxes and points."""
