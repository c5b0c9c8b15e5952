"""Conditions: which rows of a batch are chosen, by an SQL expression or by comparing values with those of a mapping."""
