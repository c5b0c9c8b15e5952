"""A service as it is written and as it is checked: the service file, its settings, where values come from."""
