"""What journals and stores share: a SQLite writer, a file lock, a PostgreSQL pool."""
