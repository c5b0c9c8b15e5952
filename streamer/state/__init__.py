"""What steps remember, saved together with the positions of the records that it comes from."""
