"""What runs the steps: one class for each, under the kind of its work."""
