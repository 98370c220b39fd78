"""The journal of single writes, in SQLite."""
