"""Running batches: joined, in portions, in several threads, and alone where they may kill the process."""
