"""Postal addresses."""

from __future__ import annotations

import attrs

from invsvc_async.models.common import ABSENT, Model

__all__ = ["Address"]


@attrs.frozen(kw_only=True, eq=False, repr=False, getstate_setstate=False)
class Address(Model):
    """A postal address; ``country`` is a 3-letter code.  Spec: Client, Team."""

    street: str = ABSENT
    exterior: str = ABSENT
    neighborhood: str = ABSENT
    city: str = ABSENT
    state: str = ABSENT
    zip: str = ABSENT
    country: str = ABSENT
