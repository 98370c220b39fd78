"""A search for duplicates that exist already: invoices, payment complements and webhooks."""

from __future__ import annotations

from invsvc_async.audit.audit import Audit
from invsvc_async.audit.duplicates import Certainty, Duplicate

__all__ = ["Audit", "Certainty", "Duplicate"]
