"""
Hold what is to be written, as plain data that outlives the process; never a token or a secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import attrs

from invsvc_async.settings import JOURNEY_READER, ReconcilePolicy, Timeouts, unpickles_older

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.history import Bounds

__all__ = ["NEVER_LISTED", "Intent", "Scope", "Sent", "SentEnd"]

# `forgotten_until` of a create whose client had seen no list of webhooks: any of them may be unknown to it
NEVER_LISTED = 10**15


@attrs.frozen(kw_only=True)
class Scope:
    """Where the write belongs: it is settled there and nowhere else."""

    base_url: str
    team: str | None = None
    livemode: bool | None = None  # as an answer showed it
    credential: str | None = None  # keyed fingerprint: tells two credentials apart, reveals neither


@unpickles_older
@attrs.frozen(kw_only=True)
class SentEnd:
    """
    How a send ended, between the server times ``earliest`` and ``latest`` (s); ``None`` without clock bounds.
    """

    # "not applied": it never left, or had a definite no; short, long: ambiguous, by settle window
    kind: Literal["applied", "not applied", "short", "long"]
    latest: float | None = None
    earliest: float | None = None


@attrs.frozen(kw_only=True)
class Sent:
    """
    One send, stored before its first byte.

    ``earliest`` and ``latest`` bracket the server time (s) of its start; ``None`` where no clock bounds were
    known. ``end`` is added when it is known.
    """

    earliest: float | None = None
    latest: float | None = None
    attempt_timeout: float
    end: SentEnd | None = None


@unpickles_older
@attrs.frozen(kw_only=True, slots=False)  # with a dict it is copied, with changes, in a tenth of the time
class Intent:
    """
    What is to be written, as plain data.

    ``operation`` is its name in the table (``"webhooks.create"``); ``path`` the names filled into the
    operation's path (for ``client.write``: ``{"method": …, "path": …}``); ``query`` and ``body`` as they go
    on the wire; ``tag`` the text at the end of a new webhook's description; ``baseline`` the last known state
    (wire form; empty if the thing was known to be gone) and ``bounds`` the clock bounds of the sending
    process, both from before the first send; ``sent`` every send so far.

    ``strangers`` are ids of webhooks of the same URL that were known before a send, so they are not this
    write's; those created up to ``forgotten_until`` (server ms) may be missing from it.  ``newest`` is
    whether no later write of this program to the same thing had been sent when this was stored; ``None`` if
    that is not known.  ``nonce`` tells apart writes to which the user gave the same key.
    """

    key: str
    operation: str
    path: dict[str, str] = attrs.field(factory=dict)
    query: dict[str, str] = attrs.field(factory=dict)
    body: Wire = None
    has_body: bool = True
    scope: Scope
    tag: str | None = None
    baseline: Wire = None
    bounds: Bounds | None = None
    sent: tuple[Sent, ...] = ()
    strangers: tuple[str, ...] = ()
    forgotten_until: int | None = None
    newest: bool | None = None
    nonce: str | None = None
    policy: ReconcilePolicy = attrs.field(factory=ReconcilePolicy)
    timeouts: Timeouts = attrs.field(factory=Timeouts)
    reader: str | None = None  # name of the caller's own reader

    @property
    def identity(self) -> str:
        """What no other write has, even one with the same user-supplied key."""
        return self.key if self.nonce is None else f"{self.key} {self.nonce}"

    def __getstate__(self) -> dict[str, Any]:  # Any: the fields
        """Pickle a reader of the caller's own by name, as ``to_json`` does: a closure has no other form."""
        policy = self.policy
        if callable(policy.journey_reader):
            policy = attrs.evolve(policy, journey_reader=JOURNEY_READER)
        return {**self.__dict__, "policy": policy}

    def to_json(self) -> str:
        """Give the intent as JSON text: no token, no secret; the caller's own readers by name only."""
        from invsvc_async.reconcile.json_form import intent_to_json

        return intent_to_json(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Intent:
        """
        Take an intent back from its JSON text.

        Raises:
            InvalidRequestError: The text is damaged, of a newer version, or not an intent at all.

        """
        from invsvc_async.reconcile.json_form import intent_from_json

        return intent_from_json(text)
