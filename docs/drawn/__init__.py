"""The pictures of the documentation that show what really ran; `make pictures` writes them all anew."""
