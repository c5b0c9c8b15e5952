"""The state of steps: kept as bytes, and handed over to another open pipeline."""
