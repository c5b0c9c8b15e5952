"""Steps for the frames of cameras, which keep what they know of each camera."""
