"""How a consumer group behaves as members come and go, measured and simulated: `python -m benchmarks.scaling`."""
