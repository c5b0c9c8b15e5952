"""Dead letters that were written: read again, shown, and sent back to where their records came from."""
