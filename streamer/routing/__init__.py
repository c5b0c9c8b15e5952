"""Chooses sinks, topics, keys and headers for results."""
