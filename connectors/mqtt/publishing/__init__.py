"""How messages are published: in blocks, with packet ids that never meet, confirmed by acknowledgements in bulk."""
