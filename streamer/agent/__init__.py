"""A service that runs: intake threads, the run thread, and what they tell each other."""
