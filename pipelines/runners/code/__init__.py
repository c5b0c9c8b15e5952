"""Runners of Python code, of functions, of whole pipelines, and of the log."""
