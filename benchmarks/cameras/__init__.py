"""The cost of a picture from a camera through a model, in CPU, time and memory."""
