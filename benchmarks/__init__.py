"""The cost of the bus: the same work by streamer, by hand and by other frameworks, on one broker."""
