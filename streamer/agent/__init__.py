"""A service that runs: intake threads, the run thread, and the messages between them."""
