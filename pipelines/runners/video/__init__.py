"""Runners for the frames of cameras: motion, tracking, zones and lines, and blurring."""
