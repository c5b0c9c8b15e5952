"""Sending blocks of messages by a producer, and learning which are confirmed."""
