"""Batches: many writes, each of which is sent once or reported as unknown, even after a kill."""

from __future__ import annotations

from invsvc_async.batch.batch import Batch
from invsvc_async.batch.result import Progress, Result, Summary, Worker

__all__ = ["Batch", "Progress", "Result", "Summary", "Worker"]
