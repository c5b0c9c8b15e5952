"""`streamer build`: what a service needs, pinned, in a folder that a container is made from."""
