"""Finds things by name: steps, runners, entry points of plug-ins, the packages they need, model files."""
