"""The commands that list what is installed, a file each."""
