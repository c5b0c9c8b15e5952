"""Servers of the same model, each a process of its own: what `benchmarks.serving` measures."""
