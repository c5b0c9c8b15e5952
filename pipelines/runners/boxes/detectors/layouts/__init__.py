"""The layouts that are built in, a module for each family of detectors."""
