"""Versions of a service's models: which files there are, opening them beside those in use, and taking over."""
