"""The programs of the camera benchmark; each runs in a fresh process and prints its results as a line of JSON."""
