"""The parts of `streamer doctor`: what it looks at, each in a file of its own."""
