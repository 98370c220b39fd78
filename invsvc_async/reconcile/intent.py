"""The intent of a write, as plain data that outlives the process.  It contains no tokens or secrets."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Literal

import attrs

from invsvc_async.codec.exact_json import Wire  # noqa: TC001 - cattrs resolves the annotations
from invsvc_async.reconcile.history import Bounds, ErrorFacts  # noqa: TC001 - the same
from invsvc_async.settings import JOURNEY_READER, ReconcilePolicy, Timeouts

# `forgotten_until` of a create whose client had not read the list of webhooks: all of them may be unknown.
NEVER_LISTED = 10**15


def _as_read_back(value: Wire) -> Wire:
    """Return *value* with each float as the ``Decimal`` that its JSON is decoded to."""
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, dict):
        return {name: _as_read_back(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_as_read_back(each) for each in value]
    return value


@attrs.frozen(kw_only=True)
class Scope:
    """Where the write belongs.  It can only be settled there."""

    base_url: str
    team: str | None = None
    livemode: bool | None = None  # as an answer showed it
    # a keyed fingerprint; it does not reveal the credential
    credential: str | None = None


@attrs.frozen(kw_only=True)
class SentEnd:
    """
    How a send ended.

    ``earliest`` and ``latest`` bound the server time (s) of the end; ``None`` without clock bounds.
    ``refusal``: the error of a refusal that proves nothing without a read.
    ``secret_lost``: the answer had a secret, which nobody got.
    """

    # "not applied": it never left, or a definite no; "short", "long": ambiguous, by settle window
    kind: Literal["applied", "not applied", "short", "long"]
    latest: float | None = None
    earliest: float | None = None
    refusal: ErrorFacts | None = None
    secret_lost: bool = False


@attrs.frozen(kw_only=True)
class Sent:
    """
    One send, stored before its first byte.

    ``earliest`` and ``latest`` bound the server time (s) of its start; ``None`` without clock bounds.
    ``end`` is added when it is known.
    """

    earliest: float | None = None
    latest: float | None = None
    attempt_timeout: float
    end: SentEnd | None = None

    @property
    def may_have_effect(self) -> bool:
        """Whether the send may have had an effect: unless it has ended without one."""
        return self.end is None or self.end.kind != "not applied"

    @property
    def is_lost(self) -> bool:
        """Whether neither its time nor its end is known, as of a send that an older copy lacks."""
        return self.latest is None and self.end is None


@attrs.frozen(kw_only=True, slots=False)  # `revised` copies its dict
class Intent:
    """
    What is to be written, as plain data.

    - ``operation``: its name in the table (``"webhooks.create"``).
    - ``path``: values for the operation's path (for ``client.write``: ``{"method": …, "path": …}``).
    - ``query`` and ``body``: in wire form.
    - ``tag``: the text at the end of a new webhook's description.
    - ``baseline``: the last known state before the first send, in wire form; empty if the resource did not
      exist.
    - ``baseline_at``: the latest server time (s) at which ``baseline`` was so; ``None`` if not known.
    - ``bounds``: the clock bounds of the sending process before the first send.
    - ``sent``: every send so far.
    - ``strangers``: ids of webhooks of the same host that were known before a send, so not its effect.
    - ``forgotten_until``: webhooks created up to this server time (ms) may be missing in ``strangers``.
    - ``newest``: whether no later write of this program to the same resource had been sent when this was
      stored; ``None`` if not known.
    - ``mixture``: a digest of what the fields sent have shown, if the last read after the settle windows
      showed that they were stored in part.  If they still show the same when it is resumed, it is sent again.
    - ``headers``: those of its ``CallOptions``, which settling and resuming it send, too.
    - ``nonce``: distinguishes writes with the same user-supplied key.
    - ``trace``: the W3C trace context (``traceparent``) in which it was made, if the client is traced.
    """

    key: str
    operation: str
    path: dict[str, str] = attrs.field(factory=dict)
    query: dict[str, str] = attrs.field(factory=dict)
    body: Wire = attrs.field(default=None, eq=_as_read_back)
    has_body: bool = True
    scope: Scope
    tag: str | None = None
    baseline: Wire = None
    baseline_at: float | None = None
    bounds: Bounds | None = None
    sent: tuple[Sent, ...] = ()
    strangers: tuple[str, ...] = ()
    forgotten_until: int | None = None
    newest: bool | None = None
    mixture: str | None = None
    nonce: str | None = None
    policy: ReconcilePolicy = attrs.field(factory=ReconcilePolicy)
    timeouts: Timeouts = attrs.field(factory=Timeouts)
    reader: str | None = None  # name of the user-supplied reader
    headers: dict[str, str] = attrs.field(factory=dict)
    trace: str | None = None

    @property
    def identity(self) -> str:
        """An identifier that is unique even among writes with the same user-supplied key."""
        if self.nonce is None:
            return self.key
        return f"{self.key} {self.nonce}"

    def __getstate__(self) -> dict[str, Any]:  # Any: the fields
        """Pickle a user-supplied reader by name, as ``to_json`` does: closures cannot be pickled."""
        policy = self.policy
        if callable(policy.journey_reader):
            policy = attrs.evolve(policy, journey_reader=JOURNEY_READER)
        return {**self.__dict__, "policy": policy}

    def to_json(self) -> str:
        """Encode the intent as JSON, without tokens and secrets.  Readers of the user are stored by name."""
        from invsvc_async.reconcile.json_form import intent_to_json

        return intent_to_json(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Intent:
        """
        Return the intent that :meth:`to_json` stored.

        Raises:
            InvalidRequestError: The text is damaged, of a newer version, or something else.
        """
        from invsvc_async.reconcile.json_form import intent_from_json

        return intent_from_json(text)


def revised(intent: Intent, **changes: Any) -> Intent:  # Any: as the fields
    """Return a copy with *changes*, in 0.8 µs against 2.2 µs of ``attrs.evolve`` (on 3.11)."""
    copy: Intent = object.__new__(Intent)
    vars(copy).update(vars(intent), **changes)
    return copy
