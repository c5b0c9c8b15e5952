"""What the bus costs: the same work by streamer, by hand and by other frameworks, on one broker."""
