"""Export of invoice lists to files: page by page, resumable, without rounding numbers."""

from __future__ import annotations

from invsvc_async.export.files import ExportError, Form
from invsvc_async.export.walk import Exported, invoices

__all__ = ["ExportError", "Exported", "Form", "invoices"]
