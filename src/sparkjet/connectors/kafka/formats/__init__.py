"""Formats of keys and values: what the bytes of a record mean, and the columns that they become."""
