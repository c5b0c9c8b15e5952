"""The parent process of workers."""
