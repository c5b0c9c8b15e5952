"""Publishes messages in blocks, with unique packet ids, and reads acknowledgements in bulk."""
