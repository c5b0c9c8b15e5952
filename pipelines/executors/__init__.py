"""Running open steps on batches: no row is lost, and a failure belongs to its record."""
