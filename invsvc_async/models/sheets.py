"""Connections to imported spreadsheets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import attrs

from invsvc_async.models.common import ABSENT, Model

__all__ = ["SheetConnection", "SheetMapping", "SyncSummary", "SyncTotals"]


@attrs.frozen(kw_only=True, eq=False, repr=False, getstate_setstate=False)
class SheetMapping(Model):
    """
    Which column is imported to which field.  The specification does not list the keys of ``fields``.

    Spec: Spreadsheet import connection.
    """

    target: str = ABSENT
    fields: Mapping[str, Any] = ABSENT


@attrs.frozen(kw_only=True, eq=False, repr=False, getstate_setstate=False)
class SyncSummary(Model):
    """Row counts of one synchronisation.  Spec: Spreadsheet import connection."""

    read: int = ABSENT
    claimed: int = ABSENT
    imported: int = ABSENT
    adopted: int = ABSENT
    failed: int = ABSENT
    review: int = ABSENT
    skipped: int = ABSENT
    remaining: int = ABSENT


@attrs.frozen(kw_only=True, eq=False, repr=False, getstate_setstate=False)
class SyncTotals(Model):
    """Row counts since the connection was created.  Spec: Spreadsheet import connection."""

    imported: int = ABSENT
    adopted: int = ABSENT
    failed: int = ABSENT
    review: int = ABSENT


@attrs.frozen(kw_only=True, eq=False, repr=False, getstate_setstate=False)
class SheetConnection(Model):
    """
    A connected spreadsheet.  Saving its mapping sets ``enabled`` to false.

    Times of events that have not happened yet are ``None``.

    Spec: Spreadsheet import connection.
    """

    spreadsheet_id: str = ABSENT
    spreadsheet_name: str = ABSENT
    spreadsheet_url: str = ABSENT
    sheet_name: str = ABSENT
    header_row: int = ABSENT
    headers: tuple[str, ...] = ABSENT
    livemode: bool = ABSENT
    mapping: SheetMapping = ABSENT
    enabled: bool = ABSENT
    poll_interval_minutes: int = ABSENT
    connected_by_email: str = ABSENT
    connected_at: datetime = ABSENT
    last_sync_at: datetime | None = ABSENT
    last_polled_at: datetime | None = ABSENT
    last_activity_at: datetime | None = ABSENT
    last_sync_summary: SyncSummary | None = ABSENT
    last_activity_summary: SyncSummary | None = ABSENT
    totals: SyncTotals = ABSENT
    sync_error: str | None = ABSENT
