"""Steps that run a model, or interpret its output."""
