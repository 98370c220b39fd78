"""The journals of batches: SQLite, PostgreSQL."""
