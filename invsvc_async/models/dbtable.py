"""Imports from a table-database provider."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import attrs

from invsvc_async.models.common import ABSENT, Model

__all__ = ["DbtableConnection", "DbtableScope", "DbtableTables", "DbtableWebhooks"]


class DbtableScope(StrEnum):
    """Whether a listing belongs to one data mode or to both."""

    MODE = "mode"
    SHARED = "shared"


@attrs.frozen(kw_only=True, eq=False, repr=False, getstate_setstate=False)
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


@attrs.frozen(kw_only=True, eq=False, repr=False, getstate_setstate=False)
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


@attrs.frozen(kw_only=True, eq=False, repr=False, getstate_setstate=False)
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
