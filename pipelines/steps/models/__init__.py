"""Steps that run a model, or read what one gave."""
