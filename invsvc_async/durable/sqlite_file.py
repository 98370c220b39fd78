"""Names that have moved."""

from invsvc_async.durable.epoch import fact
from invsvc_async.durable.sqlite_store import SqliteStore as SqliteFile

__all__ = ["SqliteFile", "fact"]
