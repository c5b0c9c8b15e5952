"""Codecs of pictures, and how codecs of other values write the images among them."""
