"""Runners of models, and of the outputs of classifiers and regressions."""
