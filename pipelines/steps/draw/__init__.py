"""Steps that draw results into images."""
