"""`streamer demo cameras`: people, cars and cups on four cameras are found, tracked and counted, on a page."""
