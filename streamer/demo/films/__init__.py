"""`streamer demo cameras`: faces on four cameras are found, tracked and blurred, and shown on a page."""
