"""
Write lists of invoices to files, page by page, so that an export can stop and go on; never round a number.
"""

from __future__ import annotations

from invsvc_async.export.run import Exported, invoices
from invsvc_async.export.sinks import ExportError, Form

__all__ = ["ExportError", "Exported", "Form", "invoices"]
