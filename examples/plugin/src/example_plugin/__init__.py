"""What this plug-in adds to streamer; entry points in pyproject.toml name it, nobody imports this package by hand."""
