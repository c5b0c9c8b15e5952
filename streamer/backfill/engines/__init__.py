"""What runs the pieces of a backfill: the processes of this machine."""
