"""Models that come and go at a listener: what it knows of their repository, and the requests about it."""
