"""What DETECT costs beside the same work written by hand."""
