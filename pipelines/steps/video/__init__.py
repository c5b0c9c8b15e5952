"""Steps for the frames of cameras; they keep state for each camera."""
