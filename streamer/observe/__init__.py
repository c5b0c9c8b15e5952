"""Observing a running service: metrics, health, logs."""
