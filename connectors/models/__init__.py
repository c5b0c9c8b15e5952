"""Models behind URLs: brought to this machine from web servers and object stores, and kept in a cache."""
