"""Sinks that show results: `view` is a page with live pictures, `video` writes annotated video."""
