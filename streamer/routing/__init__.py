"""Which result goes to which sink and topic, and what of its record goes with it."""
