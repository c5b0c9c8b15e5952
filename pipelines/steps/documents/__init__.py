"""Steps that read documents."""
