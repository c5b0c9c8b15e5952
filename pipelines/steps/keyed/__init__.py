"""Steps that remember something for each key: windows, repeated records, changes."""
