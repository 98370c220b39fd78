"""
The packed form of intents in stores, and the doubts about those of an older copy.

What the writes of one client have in common (policy, timeouts, address, team, mode) is stored once, under a
number.  The common part and the rest together are the members of ``Intent.to_json``, and the same strict
parser reads them back.

Any intent of an older copy of a store may have been sent since the copy was made.  Such a *lost* send has a
time that is not known.  If a read shows the thing as an earlier write of the store left it, a lost send has
not arrived, or somebody has undone it.  Nothing tells which, so the write is UNKNOWN.  To retry it is the
word of a person that it is to be sent.
"""

from __future__ import annotations

from hashlib import blake2b
from operator import attrgetter
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
import msgspec

from invsvc_async.codec import envelope
from invsvc_async.durable.entry import Entry, unreadable
from invsvc_async.errors import InvalidRequestError, InvsvcError
from invsvc_async.reconcile import json_form
from invsvc_async.reconcile.intent import Intent, Scope, Sent, SentEnd
from invsvc_async.settings import ReconcilePolicy, Timeouts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from invsvc_async.storage.dialect import Cell


_encode = msgspec.json.Encoder(decimal_format="number").encode
_COMMON = ("scope", "policy", "timeouts")
_Factory: Any = attrs.Factory  # its stub is a function


# All other fields belong to the intent itself, and are left out if they have their default.  They are taken
# from the class, so that a field added there is stored too.
_OWN = [
    each
    for each in attrs.fields(Intent)
    if each.name not in {"key", "operation", *_COMMON}
]
_Own = msgspec.defstruct(
    "_Own",
    [
        ("operation", str),
        ("credential", "str | None", None),
        *(
            (
                each.name,
                Any,
                each.default.factory()
                if isinstance(each.default, _Factory)
                else each.default,
            )
            for each in _OWN
        ),
    ],
    omit_defaults=True,
)
_own_of: attrgetter[tuple[Any, ...]] = attrgetter(  # Any: of each field its own
    "operation", "scope.credential", *(each.name for each in _OWN)
)
_KEPT = 1000  # common parts remembered: one for each policy, team and mode in use


class Packed(NamedTuple):
    """An intent as stored; ``common`` is the number of its common part."""

    common: int
    text: str


class Commons:
    """
    The common parts in a store, by numbers: digests, which each process can tell from the texts.

    ``stored`` are the numbers of those that the store has.
    """

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self.stored: set[int] = set()
        # By the ids of the parts; the intent is kept so that Python does not reuse those ids.
        self._known: dict[tuple[object, ...], tuple[int, Intent]] = {}
        self._parts: dict[int, tuple[dict[str, Any], ReconcilePolicy, Timeouts]] = {}

    def number_of(self, intent: Intent) -> int:
        """Return the number of *intent*'s common part."""
        scope = intent.scope
        short = (
            id(intent.policy),
            id(intent.timeouts),
            scope.base_url,
            scope.team,
            scope.livemode,
        )
        if (known := self._known.get(short)) is not None:
            return known[0]
        whole = envelope.loads(intent.to_json().encode())
        del whole["scope"]["credential"]
        text = envelope.dumps(
            {name: whole[name] for name in ("schema", *_COMMON)}
        ).decode()
        number = int.from_bytes(
            blake2b(text.encode(), digest_size=8).digest(), signed=True
        )
        self.texts[number] = text
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[short] = number, intent
        return number

    def fresh(self) -> list[tuple[int, str]]:
        """Return those that are not known to be stored."""
        if len(self.stored) == len(self.texts):
            return []
        return [each for each in [*self.texts.items()] if each[0] not in self.stored]

    def lack(self, entries: Iterable[Entry]) -> bool:
        """Return whether one of *entries* has a common part that another process has stored."""
        return any(
            entry.common not in self.texts
            for entry in entries
            if entry.common is not None
        )

    def load(self, rows: Iterable[Sequence[Cell]]) -> None:
        """Note those that are stored."""
        for number, text in rows:
            self.texts[number] = text
            self.stored.add(number)

    def parts_of(self, number: int) -> tuple[dict[str, Any], ReconcilePolicy, Timeouts]:
        """
        Return the scope (as plain data), the policy and the timeouts of a common part; parsed once.

        Raises:
            InvalidRequestError: It is damaged, or of a newer version.
            KeyError: It does not exist.
        """
        parts = self._parts.get(number)
        if parts is None:
            common = json_form.parsed(self.texts[number], "an intent")
            policy = json_form.structured(common["policy"], ReconcilePolicy, "a policy")
            timeouts = json_form.structured(common["timeouts"], Timeouts, "timeouts")
            parts = self._parts[number] = common["scope"], policy, timeouts
        return parts


def pack(intent: Intent, commons: Commons) -> Packed:
    """Return the packed form of *intent*; fields that have their default are left out."""
    return Packed(commons.number_of(intent), _encode(_Own(*_own_of(intent))).decode())


def unpack(key: str, packed: Packed, commons: Commons) -> Intent:
    """Return the intent in *packed*; raise JournalError if it is damaged, or of a newer version."""
    try:
        scope, policy, timeouts = commons.parts_of(packed.common)
        own = envelope.loads(packed.text.encode())
        scope = {**scope, "credential": own.pop("credential", None)}
        own |= {"key": key, "scope": scope, "policy": policy, "timeouts": timeouts}
        intent = json_form.structured(own, Intent, "an intent")
        if problem := json_form.misfit(intent):
            raise InvalidRequestError(problem)
    except (InvsvcError, KeyError, AttributeError, TypeError) as error:
        raise unreadable(key, error) from error
    return intent


def scope_in(key: str, common: int, commons: Commons) -> Scope:
    """
    Return the scope in the *common* part of the intent of *key*, which does not have the credential.

    Raises:
        JournalError: It is damaged, or of a newer version.
    """
    try:
        scope, _, _ = commons.parts_of(common)
        return json_form.structured(scope, Scope, "a scope")
    except (InvsvcError, KeyError) as error:
        raise unreadable(key, error) from error


def as_new(intent: Intent, sent: tuple[Sent, ...] = ()) -> Intent:
    """Return *intent* as that of a new write; *sent* are sends that provably had no effect."""
    return attrs.evolve(
        intent,
        sent=sent,
        bounds=None,
        baseline=None,
        newest=None,
        mixture=None,
        nonce=token_hex(8),
    )


def without_effect(intent: Intent) -> Intent:
    """
    Return *intent* with only its last send, if there was a send, marked as provably without an effect.

    The send is kept because the verdict must not say that the write was never sent.
    """
    return attrs.evolve(intent, sent=_not_applied(intent.sent[-1:]))


def without_lost_sends(intent: Intent) -> Intent:
    """
    Return *intent* to be sent as a new write, if ``seen_undone`` was all its doubt.

    Its lost sends then count as without an effect.  That is so only if no later write is done or in doubt:
    the read may have shown the effect of that one.
    """
    seen = [*filter(_is_seen, intent.sent)][:1]
    if not seen:
        return intent
    return as_new(intent, _not_applied(seen))


def _not_applied(sends: Iterable[Sent]) -> tuple[Sent, ...]:
    """Return *sends* as those that provably had no effect."""
    return tuple(attrs.evolve(each, end=SentEnd(kind="not applied")) for each in sends)


def has_lost_send(intent: Intent) -> bool:
    """Return whether *intent* has a lost send about which nothing is known yet."""
    return any(each.is_lost for each in intent.sent)


def may_be_unsent(intent: Intent) -> bool:
    """
    Return whether *intent* was perhaps not sent at all: only lost sends of it may have an effect.

    A send of a process that did not know the service's clock looks like a lost one.
    """
    return not any(each.may_have_effect for each in intent.sent if not each.is_lost)


def in_doubt(intent: Intent, earliest: float | None = None) -> Intent:
    """
    Return *intent* with one more send, at an unknown time: after *earliest* (server time in s), if given.

    It is then settled like any write in doubt.
    """
    if was_seen_undone(intent):  # that doubt is settled already
        return intent
    sent = Sent(earliest=earliest, attempt_timeout=intent.timeouts.attempt)
    # Later writes to the same thing may have been sent as well.
    newest = None if intent.newest else intent.newest
    if sent in intent.sent:
        return attrs.evolve(intent, newest=newest)
    if any(each.may_have_effect for each in intent.sent):
        return attrs.evolve(intent, sent=(*intent.sent, sent), newest=newest)
    # A state that was read before is no baseline: lost sends may have been before it.
    return attrs.evolve(
        intent,
        sent=(sent,),
        baseline=None,
        bounds=None,
        newest=newest,
    )


def seen_undone(intent: Intent, at: float) -> Intent | None:
    """Return *intent* after a read at *at* (server s) without its effect; ``None`` if nothing was lost."""
    if not has_lost_send(intent):
        return None
    end = SentEnd(
        kind="long",
        earliest=at,
        latest=at,
    )
    sent = [
        attrs.evolve(each, end=end) if each.latest is None else each
        for each in intent.sent
    ]
    return attrs.evolve(intent, sent=tuple(sent))


def was_seen_undone(intent: Intent) -> bool:
    """Return whether ``seen_undone`` has given *intent* ends, and nothing was sent since."""
    return any(map(_is_seen, intent.sent))


def _is_seen(sent: Sent) -> bool:
    """
    Return whether *sent* is a lost send after which a read was made.

    Only such a send has ``end.latest`` without a ``latest`` of its own.
    """
    if sent.latest is not None or sent.end is None:
        return False
    return sent.end.latest is not None
