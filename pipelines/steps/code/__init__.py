"""Steps of Python code, functions, whole pipelines, and the log."""
