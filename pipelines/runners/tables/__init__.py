"""Tables of files, made again when their files are replaced, and the runner of LOOKUP."""
