"""What is around a record's payload as values: the types of keys and headers."""
