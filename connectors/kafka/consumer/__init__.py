"""Makes blocks of records from a consumer's messages, and commits positions."""
