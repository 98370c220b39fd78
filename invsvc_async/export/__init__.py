"""
Write lists of invoices to files, page by page, so that an export can stop and go on; never round a number.
"""

from __future__ import annotations

from invsvc_async.export.files import ExportError, Form
from invsvc_async.export.walk import Exported, invoices

__all__ = ["ExportError", "Exported", "Form", "invoices"]
