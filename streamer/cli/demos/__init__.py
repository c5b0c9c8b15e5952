"""What `streamer demo` shows of each example while it runs, and at its end."""
