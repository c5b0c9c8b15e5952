"""Types that codecs state for the values of keys, and what becomes a value of these types."""
