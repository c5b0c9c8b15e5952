"""Conditions: which rows of a batch are chosen, by a mapping of keys to what is compared with their values."""
