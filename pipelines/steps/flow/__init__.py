"""What parts and joins the branches of a graph, and what triggers a pipeline."""
