"""What a picture costs from a camera through a model, in CPU, time and memory."""
