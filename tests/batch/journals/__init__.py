"""Journals that an earlier commit has made, as text, and what makes them."""
