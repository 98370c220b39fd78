"""Users and their preferences."""

from __future__ import annotations

from datetime import datetime

import attrs

from invsvc_async.models.address import Address
from invsvc_async.models.common import ABSENT, Model

__all__ = ["Preferences", "User"]


@attrs.frozen(kw_only=True, eq=False, repr=False, getstate_setstate=False)
class User(Model):
    """A person; ``teams`` has the ids of their teams.  Spec: User."""

    id: str = ABSENT
    email: str = ABSENT
    first_name: str = ABSENT
    last_name: str = ABSENT
    phone: str = ABSENT
    teams: tuple[str, ...] = ABSENT
    created_at: datetime = ABSENT
    company_role: str = ABSENT
    address: Address = ABSENT


@attrs.frozen(kw_only=True, eq=False, repr=False, getstate_setstate=False)
class Preferences(Model):
    """
    A person's preferences for one team.  ``testmode`` sets the data mode of their tokens from then on.

    Spec: User preferences for a team.
    """

    team_id: str = ABSENT
    testmode: bool = ABSENT
    search_collection: str = ABSENT
    invoices_order_by: str = ABSENT
