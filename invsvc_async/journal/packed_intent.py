"""
Give intents the short form in which a journal keeps them; never lose what settling needs.

What the writes of one client have in common (policy, timeouts, address, team, mode) is kept once, under a
number. Short form and common part together are ``Intent.to_json``'s members, so they are read back by the
same strict reader.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import attrs
import msgspec

from invsvc_async._errors import InvalidRequestError, InvsvcError, JournalError
from invsvc_async.codec import envelope
from invsvc_async.reconcile import json_form
from invsvc_async.reconcile.intent import Intent
from invsvc_async.settings import ReconcilePolicy, Timeouts

__all__ = ["Commons", "Packed", "pack", "unpack"]
_encode = msgspec.json.Encoder(decimal_format="number").encode
_COMMON = ("scope", "policy", "timeouts")


def _default(default: Any) -> Any:  # Any: whatever a field holds
    factory = getattr(default, "factory", None)
    return default if factory is None else msgspec.field(default_factory=factory)


# Every other field is an intent's own, and left out where it is as by default: taken from the class, so that
# a field that is added to it is kept as well.
_Own = msgspec.defstruct(
    "_Own",
    [
        ("operation", str),
        ("credential", "str | None", None),
        *(
            (each.name, Any, _default(each.default))
            for each in attrs.fields(Intent)
            if each.name not in {"key", "operation", *_COMMON}
        ),
    ],
    kw_only=True,
    omit_defaults=True,
)
_KEPT = 1000  # common parts remembered; one for each policy, team and mode that is in use


@attrs.define(kw_only=True)
class Packed:
    """An intent as it is stored: ``common`` is the number of its common part."""

    common: int
    text: str


class Commons:
    """
    The common parts that a journal holds, by number and by text; they are stored elsewhere.

    Numbers are 1, 2, …; *shared* among machines, they are digests of the text, so that nobody need ask.
    """

    def __init__(self, *, shared: bool = False) -> None:
        self._shared = shared
        self.texts: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        # By the ids of its parts; the intent beside the number keeps those ids from being used anew.
        self._known: dict[tuple[object, ...], tuple[int, Intent]] = {}
        self._parts: dict[int, tuple[dict[str, Any], ReconcilePolicy, Timeouts]] = {}

    def load(self, number: int, text: str) -> None:
        """Take one over from the journal."""
        self.texts[number] = text
        self._numbers[text] = number

    def number_of(self, intent: Intent) -> int:
        """Tell the number of *intent*'s common part; a new one gets the next."""
        known = self._known.get(_short(intent))
        return self.note(intent, self._number(_common_text(intent))) if known is None else known[0]

    def note(self, intent: Intent, number: int) -> int:
        """Remember that *number* is that of *intent*'s common part."""
        short = _short(intent)
        if short not in self._known:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[short] = number, intent
        return number

    def parts_of(self, number: int) -> tuple[dict[str, Any], ReconcilePolicy, Timeouts]:
        """
        Give the scope, as plain data, the policy and the timeouts of a common part; read once, then shared.

        Raises:
            InvalidRequestError: It is damaged, or of a newer version.
            KeyError: There is none.

        """
        parts = self._parts.get(number)
        if parts is None:
            common = json_form.parsed(self.texts[number], "an intent")
            policy = json_form.structured(common["policy"], ReconcilePolicy, "a policy")
            timeouts = json_form.structured(common["timeouts"], Timeouts, "timeouts")
            parts = self._parts[number] = common["scope"], policy, timeouts
        return parts

    def _number(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = _digest(text) if self._shared else len(self.texts) + 1
            self.load(number, text)
        return number


def _short(intent: Intent) -> tuple[object, ...]:
    """Identify the common part of *intent* without writing it out."""
    scope = intent.scope
    return id(intent.policy), id(intent.timeouts), scope.base_url, scope.team, scope.livemode


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), signed=True)


def _common_text(intent: Intent) -> str:
    whole = envelope.loads(intent.to_json().encode())
    del whole["scope"]["credential"]
    return envelope.dumps({name: whole[name] for name in ("schema", *_COMMON)}).decode()


def pack(intent: Intent, commons: Commons) -> Packed:
    """Give the short form of *intent*; what is as by default is left out."""
    own = {**vars(intent), "credential": intent.scope.credential}
    for name in ("key", *_COMMON):
        del own[name]
    return Packed(common=commons.number_of(intent), text=_encode(_Own(**own)).decode())


def _strictly(plain: dict[str, Any]) -> Intent:  # Any: parsed JSON
    """Make an intent of plain data, by the reader of ``Intent.from_json``."""
    intent = json_form.structured(plain, Intent, "an intent")
    if problem := json_form.misfit(intent):
        raise InvalidRequestError(problem)
    return intent


def unpack(key: str, packed: Packed, commons: Commons) -> Intent:
    """
    Take an intent back.

    Raises:
        JournalError: What is stored is no intent: the journal is damaged, or of a newer version.

    """
    try:
        scope, policy, timeouts = commons.parts_of(packed.common)
        own = envelope.loads(packed.text.encode())
        own["scope"] = {**scope, "credential": own.pop("credential", None)}
        own["key"] = key
        intent = attrs.evolve(_strictly(own), policy=policy, timeouts=timeouts)
    except (InvsvcError, KeyError, AttributeError, TypeError) as error:
        raise JournalError(f"entry {key!r} of the journal cannot be read: {error}") from error
    commons.note(intent, packed.common)
    return intent
