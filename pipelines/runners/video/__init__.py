"""Runners for the frames of cameras: what moves, what it is called, where it goes, and what is not to be seen."""
