"""Arrays and images in the forms of other libraries, and back."""
