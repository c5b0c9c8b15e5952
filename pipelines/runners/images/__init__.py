"""Runners from image to image and from image to array."""
