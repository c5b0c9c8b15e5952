"""Supervision: a parent process, its worker processes, and the shared file through which they know of each other."""
