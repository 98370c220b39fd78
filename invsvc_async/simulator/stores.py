"""
How the service stores the values sent: letter by letter, or in its own way.

Many services normalise texts, complete graphs, mask secrets, store a part of an update before they fail, or
cut their times.  `Stores` says which of that this service does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Literal, get_args

from invsvc_async.simulator.own_words import FIELDS, WAYS, WORDS
from invsvc_async.simulator.plan_checks import (
    check_known,
    check_probability,
    listed,
    parts_of,
)

if TYPE_CHECKING:
    import random

    from invsvc_async.simulator.json_records import Json, Record

Seeded = Callable[[str], "random.Random"]  # a generator for what its text names
Times = Literal["exact", "zero", "seconds", "minute", "day"]
How = Literal["as sent", "other words", "in part"]
_CUT: Mapping[Times, Callable[[int], int]] = {
    "exact": lambda ms: ms,
    "zero": lambda _ms: 0,
    "seconds": lambda ms: ms // 1000,
    "minute": lambda ms: ms - ms % 60_000,
    "day": lambda ms: ms - ms % 86_400_000,
}


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Stores:
    """
    How the service stores and shows journeys and webhooks.  By default: letter by letter.

    What becomes of a value depends on the simulator's seed and on the value alone, so that the same text is
    always stored in the same words.

    Args:
        words: Its own words.  Texts: "nfc", "no markup", "no emoji", "no zero-width", "trimmed", "folded" (in
            case), "masked" (what looks like a token), "cut", "entities" (``&amp;`` for ``&``).  URLs: also
            "sorted" (the query).  Graphs: "viewport" (a default one), "reordered" (nodes), "rounded"
            (positions).  Others: "sorted" (events), "alias" (of `triggerType`), "inactive" (new
            webhooks).
        fields: The fields that are stored in own words, by their names in the specification; `None`: all.
        rate: Probability that one of the *words* is applied to one value, 0 to 1; "cut" is applied to all
            values of a field, or to none.
        longest: Characters that "cut" leaves of a text.
        partly: Probability that an update that changes several fields stores only some of them.  It is
            answered 500.
        echoes: Whether the answer to a write shows what was sent, while reads show what is stored.
        twice: Probability that lists show a webhook twice.
        hides_inactive: Whether lists show inactive webhooks only if ``status=inactive`` asks for them.
        created_at: What new webhooks show: the "exact" time, "zero", epoch "seconds", or the beginning of the
            "minute" or "day".
        last_updated: The same for changed journeys.

    Raises:
        ValueError: A probability outside 0 to 1, an unknown name, or no characters at all.
    """

    words: tuple[str, ...] = ()
    fields: tuple[str, ...] | None = None
    rate: float = 1.0
    longest: int = 24
    partly: float = 0.0
    echoes: bool = False
    twice: float = 0.0
    hides_inactive: bool = False
    created_at: Times = "exact"
    last_updated: Times = "exact"

    def __post_init__(self) -> None:
        for name in ("rate", "partly", "twice"):
            check_probability(name, getattr(self, name))
        for name in ("echoes", "hides_inactive"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(  # noqa: TRY004 - what is promised
                    f"{name} must be True or False, not {getattr(self, name)!r}"
                )
        if self.words != ():
            check_known("words", self.words, WORDS)
        if self.fields is not None:
            check_known("fields", self.fields, FIELDS)
        is_whole = isinstance(self.longest, int) and not isinstance(self.longest, bool)
        if not is_whole or self.longest < 1:
            raise ValueError(f"longest must be 1 or more, not {self.longest!r}")
        for name in ("created_at", "last_updated"):
            check_known(name, (getattr(self, name),), get_args(Times))

    @classmethod
    def parse(cls, text: str) -> Stores:
        """
        Parse a plan from a command line, or ``none``: ``words=nfc+trimmed,fields=name,partly=0.1``.

        Words of two parts may have a hyphen: ``words=no-emoji``.

        Raises:
            ValueError: An unknown name, or an invalid value.
        """
        found = {name: _value(name, value) for name, value in parts_of(text)}
        return cls(**found)

    def text(self) -> str:
        """Return the plan in the words of `parse`."""
        changed = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if getattr(self, each.name) != each.default
        }
        if not changed:
            return "none"
        return ",".join(f"{name}={_text(value)}" for name, value in changed.items())

    def in_own_words(
        self,
        name: str,
        value: Json,
        seeded: Seeded,
    ) -> Json:
        """Return the *value* of a field as it is stored."""
        if not self.words or value is None or name not in FIELDS:
            return value
        is_chosen = self.fields is None or name in self.fields
        if not is_chosen:
            return value
        kind = FIELDS[name]
        stored = value
        for word, ways in WAYS.items():
            if word not in self.words or kind not in ways:
                continue
            if seeded(_chance_of(word, name, value)).random() < self.rate:
                stored = ways[kind](stored, self.longest)
        return stored

    def shows_twice(self, webhook: str, seeded: Seeded) -> bool:
        """Return whether lists show the webhook with this id twice."""
        return self.twice > 0 and seeded(f"twice/{webhook}").random() < self.twice


def _chance_of(word: str, name: str, value: Json) -> str:
    """Return what decides whether *word* is applied to a value of the field *name*."""
    is_limit = word == "cut"  # which is one of the field, whatever the value
    if is_limit:
        return f"{word}/{name}"
    return f"{word}/{name}/{value}"


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Kept:
    """The fields of a write as they were *sent*, and as they are *stored*."""

    sent: dict[str, Json]
    stored: dict[str, Json] = field(default_factory=dict[str, "Json"])
    in_part: bool = False

    @property
    def how(self) -> How:
        """Return how the service stored them."""
        if self.in_part:
            return "in part"
        if self.stored == self.sent:
            return "as sent"
        return "other words"


def time_of(times: Times, now_ms: int) -> int:
    """Return what the service shows as the time *now_ms*."""
    return _CUT[times](now_ms)


def kept_of_new(
    stores: Stores,
    sent: Mapping[str, Json],
    seeded: Seeded,
) -> Kept:
    """Return the fields of a create as they are stored."""
    stored = {
        name: stores.in_own_words(name, value, seeded) for name, value in sent.items()
    }
    return Kept(sent=dict(sent), stored=stored)


def kept_of_update(
    stores: Stores,
    sent: Mapping[str, Json],
    before: Mapping[str, Json],
    seeded: Seeded,
    chance: random.Random,
) -> Kept:
    """
    Return the fields of an update as they are stored.  By *chance*, only some are.

    A part changes something, and leaves out something that the whole update would have changed.
    """
    stored = dict(sent)
    for name, value in sent.items():
        if name != "status":
            stored[name] = stores.in_own_words(name, value, seeded)
    changing = sorted(
        name for name, value in stored.items() if value != before.get(name)
    )
    if not _is_in_part(changing, stores, chance):
        return Kept(sent=dict(sent), stored=stored)
    left_out = chance.sample(changing, chance.randrange(1, len(changing)))
    part = {name: value for name, value in stored.items() if name not in left_out}
    return Kept(
        sent=dict(sent),
        stored=part,
        in_part=True,
    )


def _is_in_part(
    changing: Sequence[str],
    stores: Stores,
    chance: random.Random,
) -> bool:
    if len(changing) < 2 or not stores.partly:
        return False
    return chance.random() < stores.partly


def listed_hooks(
    stores: Stores,
    hooks: list[Record],
    seeded: Seeded,
    *,
    status: str | None,
) -> list[Record]:
    """Return the webhooks of a list as the service shows them; *status* is what the list was asked for."""
    if stores.hides_inactive and status is None:
        hooks = [hook for hook in hooks if hook["status"] != "inactive"]
    shown: list[Record] = []
    for hook in hooks:
        shown.append(hook)
        if stores.shows_twice(hook["id"], seeded):
            shown.append(hook)
    return shown


def _value(name: str, value: str) -> Json:
    known = {each.name: each.default for each in fields(Stores)}
    if name not in known:
        raise ValueError(f"stores: {name!r} is not among {', '.join(sorted(known))}")
    if name in ("words", "fields"):
        return tuple(each.replace("no-", "no ") for each in listed(value))
    if name in ("created_at", "last_updated"):
        return value
    if name in ("echoes", "hides_inactive"):
        return {"": True, "true": True, "false": False}.get(value, value)
    try:
        if name == "longest":
            return int(value)
        return float(value)
    except ValueError:
        raise ValueError(f"stores: {name} takes a number, not {value!r}") from None


def _text(value: Json) -> str:
    if isinstance(value, tuple):
        return "+".join(each.replace("no ", "no-") for each in value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
