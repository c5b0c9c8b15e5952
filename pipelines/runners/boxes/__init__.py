"""Runners from a detector's arrays to boxes and points."""
