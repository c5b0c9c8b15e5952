"""`streamer build`: writes a folder with all that a service needs, pinned, to build a container from."""
