"""Detectors: what the outputs of a model mean, and the boxes in them."""
