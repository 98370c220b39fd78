"""Imports from spreadsheets, and from a table-database provider."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import attrs

from invsvc_async.models.common import ABSENT, Model

__all__ = [
    "DbtableConnection",
    "DbtableScope",
    "DbtableTables",
    "DbtableWebhooks",
    "SheetConnection",
]
__all__ += ["SheetMapping", "SyncSummary", "SyncTotals"]


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class SheetMapping(Model):
    """
    Which column is imported to which field.  The specification does not list the keys of ``fields``.

    Spec: Spreadsheet import connection.
    """

    target: str = ABSENT
    fields: Mapping[str, Any] = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
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


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class SyncTotals(Model):
    """Row counts since the connection was created.  Spec: Spreadsheet import connection."""

    imported: int = ABSENT
    adopted: int = ABSENT
    failed: int = ABSENT
    review: int = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
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


class DbtableScope(StrEnum):
    """Whether a listing belongs to one data mode or to both."""

    MODE = "mode"
    SHARED = "shared"


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class DbtableConnection(Model):
    """
    The provider connection of a team, shared by live and test mode.

    Spec: Table-database import listings.
    """

    connected: bool = ABSENT
    restricted: bool = ABSENT
    recovery_session_id: str | None = ABSENT
    identity_verification: Mapping[str, Any] | None = ABSENT
    effect_scope: str = ABSENT
    oauth_credentials_retained: bool = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class DbtableWebhooks(Model):
    """
    A listing of import mappings; ``data`` is plain data.

    ``status`` may be ``processing`` or ``outcome_unknown``, and is ``None`` if the answer has none.

    Spec: Table-database import listings.
    """

    data: tuple[Any, ...] = ABSENT
    has_more: bool = ABSENT
    next_cursor: str | None = ABSENT
    scope: DbtableScope | str = ABSENT
    livemode: bool = ABSENT
    provider_environment: str = ABSENT
    can_manage: bool = ABSENT
    can_recover_registration: bool = ABSENT
    blocking_operation_id: str | None = ABSENT
    connection: DbtableConnection = ABSENT
    status: str | None = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class DbtableTables(Model):
    """
    A listing of tables and their fields; ``data`` is plain data.

    ``status`` may be ``processing`` or ``outcome_unknown``, and is ``None`` if the answer has none.

    Spec: Table-database import listings.
    """

    data: tuple[Any, ...] = ABSENT
    has_more: bool = ABSENT
    next_cursor: str | None = ABSENT
    effect_scope: str = ABSENT
    provider_environment: str = ABSENT
    status: str | None = ABSENT
