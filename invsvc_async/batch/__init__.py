"""
Write many things so that a kill at any moment leaves each written once, or named as unknown.
"""

from __future__ import annotations

from invsvc_async.batch.batch import Batch
from invsvc_async.batch.result import Progress, Result, Summary

__all__ = ["Batch", "Progress", "Result", "Summary"]
