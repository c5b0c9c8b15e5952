"""How records are gathered into batches, and how large these are."""
