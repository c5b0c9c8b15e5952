"""Steps that split and join the branches of a graph, and the triggers of asynchronous pipelines."""
