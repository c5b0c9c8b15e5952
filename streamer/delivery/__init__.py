"""Sending, confirming and acknowledging, and the treatment of records that fail."""
