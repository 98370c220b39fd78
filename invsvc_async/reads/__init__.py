"""Reads: retries, pages, resume tokens."""
