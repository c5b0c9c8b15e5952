"""The programs of the camera benchmark; each runs in a fresh process and prints what it measured as a line of JSON."""
