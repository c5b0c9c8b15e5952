"""What steps remember between records: in columns by key, written piece by piece, and read back."""
