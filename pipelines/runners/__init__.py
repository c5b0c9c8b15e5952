"""The runners of the steps: one class for each step, in a folder for each kind of work."""
