"""Pipelines as they are written, JSON, YAML or Python, and as they are checked: sequences, graphs, their wiring."""
