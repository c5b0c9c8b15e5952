"""Frames of cameras and videos."""
