"""Topics as tables of LOOKUP: their fields, and reading them by any bus that can be browsed."""
