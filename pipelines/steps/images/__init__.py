"""Steps from image to image, to arrays, and from cameras."""
