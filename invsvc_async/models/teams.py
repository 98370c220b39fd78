"""Teams, which are the issuers of invoices, users, and postal addresses."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import attrs

from invsvc_async.models.common import ABSENT, Model

__all__ = [
    "Address",
    "Brand",
    "EmailSettings",
    "Integration",
    "Member",
    "Periodicity",
    "Preferences",
]
__all__ += ["SatState", "Team", "TeamSettings", "User"]


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class Address(Model):
    """A postal address; ``country`` is a 3-letter code.  Spec: Client, Team."""

    street: str = ABSENT
    exterior: str = ABSENT
    neighborhood: str = ABSENT
    city: str = ABSENT
    state: str = ABSENT
    zip: str = ABSENT
    country: str = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class Brand(Model):
    """The branding of a team; colours are hex strings, ``logo`` is a URL.  Spec: Team."""

    alias: str = ABSENT
    primary_color: str = ABSENT
    secondary_color: str = ABSENT
    logo: str | None = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class EmailSettings(Model):
    """Which emails a team sends, and who gets a blind copy of its invoices.  Spec: Team."""

    invoices_bcc: tuple[str, ...] = ABSENT
    avoid_invoice_emails: bool = ABSENT
    avoid_test_invoice_emails: bool = ABSENT
    avoid_receipts_emails: bool = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class Periodicity(Model):
    """How often a global invoice is issued.  Spec: Team."""

    label: str = ABSENT
    value: str = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class TeamSettings(Model):
    """A team's defaults for its invoices.  Spec: Team."""

    default_description: str | None = ABSENT
    emails: EmailSettings = ABSENT
    global_invoice_disabled: bool = ABSENT
    use: str = ABSENT
    periodicity: Periodicity = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class Member(Model):
    """A user in a team; known roles are ``admin``, ``editor`` and ``viewer``.  Spec: Team."""

    id: str = ABSENT
    email: str = ABSENT
    role: str = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class SatState(Model):
    """A team's connection to the tax authority.  Its times are missing until it is connected.  Spec: Team."""

    completed: bool = ABSENT
    connected_at: datetime | None = ABSENT
    csd_expires_at: datetime | None = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class Integration(Model):
    """The state of one integration of a team.  Spec: Team."""

    completed: bool = ABSENT
    category: str | None = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class Team(Model):
    """
    An issuing team.

    ``credit_limit`` is in documents per billing period; ``None`` means the shared pool.

    Spec: Team.
    """

    id: str = ABSENT
    legal_name: str = ABSENT
    address: Address = ABSENT
    brand: Brand = ABSENT
    settings: TeamSettings = ABSENT
    members: tuple[Member, ...] = ABSENT
    owner: str = ABSENT
    support_email: str = ABSENT
    support_phone: str = ABSENT
    tax_id: str = ABSENT
    tax_system: str = ABSENT
    created_at: datetime = ABSENT
    sat: SatState = ABSENT
    integrations: Mapping[str, Integration] = ABSENT
    metadata: Mapping[str, Any] = ABSENT
    credit_limit: Decimal | None = ABSENT
    used_credits: Decimal = ABSENT
    credit_period_start: datetime = ABSENT
    status: str = ABSENT
    scheduled_deletion: Any = ABSENT
    onboarding_url: str | None = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
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


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class Preferences(Model):
    """
    A person's preferences for one team.  ``testmode`` sets the data mode of their tokens from then on.

    Spec: User preferences for a team.
    """

    team_id: str = ABSENT
    testmode: bool = ABSENT
    search_collection: str = ABSENT
    invoices_order_by: str = ABSENT
