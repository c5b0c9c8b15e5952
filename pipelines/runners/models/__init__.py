"""Runners of models, and of what classifiers and regressions give."""
