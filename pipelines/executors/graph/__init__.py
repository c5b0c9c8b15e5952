"""Running the branches of a graph, and joining their rows again."""
