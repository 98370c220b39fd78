"""Comparison of a program's own rows with a list of the service: missing, different, duplicate."""

from __future__ import annotations

from invsvc_async.drift.comparison import Comparison
from invsvc_async.drift.table import Difference, FieldDifference, Kind

__all__ = ["Comparison", "Difference", "FieldDifference", "Kind"]
