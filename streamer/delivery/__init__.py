"""What is sent, confirmed and acknowledged, and what becomes of records that fail."""
