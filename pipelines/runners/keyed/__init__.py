"""The code of steps that remember something for each key: windows, repeated records, changes."""
