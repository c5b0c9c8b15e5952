"""The formats of a backfill's inputs: how files become pieces, and pieces blocks of rows."""
