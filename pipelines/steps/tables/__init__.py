"""Steps that bring values of tables beside the records."""
