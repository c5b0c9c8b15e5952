"""Runners that draw results into images."""
