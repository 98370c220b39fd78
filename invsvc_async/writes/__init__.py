"""A write, from the call to its verdict."""
