"""HTTP served by this process, and names of hosts."""
