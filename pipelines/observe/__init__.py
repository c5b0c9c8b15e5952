"""Observing a running pipeline: metrics of steps, profiles and traces."""
