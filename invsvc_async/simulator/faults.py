"""
Faults: steps written in words, and plans that draw steps at random.

The application and `replies` execute a step.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from invsvc_async.simulator.operations import BY_OPERATION
from invsvc_async.simulator.plan_checks import (
    check_known,
    check_probability,
    check_seconds,
    digits,
    listed,
    parts_of,
)

if TYPE_CHECKING:
    import random


STATUSES = ("500", "502", "503", "504", "408")
LOST = (
    "reset",
    "close",
    "hang",
    "truncate",
    "garbage",
    "html",
    "empty",
    "half-head",
    "idle-close",
)
KINDS = (*STATUSES, *LOST)
PHASES = ("before", "after", "late")
# answered by a gateway, in HTML, unless the step says "own"
GATEWAY = frozenset({408, 502, 503, 504})

# Ends with the service's true answer.  With them, a valid write always has its effect.
TRUTHFUL = frozenset(
    {"pass", "slow", "drip", "bare", "idle-close", "stale", "bad item"}
)
READ_ONLY = frozenset({"stale", "bad item"})
INVOICE_LISTS = frozenset({"invoices.egress", "invoices.payment_complements"})


@dataclass(frozen=True, slots=True)
class Step:
    """When the effect of one arrival happens, and how the exchange ends."""

    words: str
    end: str
    effect: Literal["none", "now", "late"] = "none"
    late: float = 0.0  # seconds from the end to the effect
    status: int = 0
    wait: float = 0.0  # seconds that the service works before the effect
    # seconds of "slow", "hang", "idle-close", "stale"; Retry-After of 429
    number: float | None = None
    own: bool = True  # the service's own envelope, not a gateway's page
    variant: str = ""


_SECONDS = r"(?P<number>[0-9]+(?:\.[0-9]+)?)"
_EFFECT = re.compile(rf"(?:(?P<now>apply)|late {_SECONDS}), then (?P<end>.+)")
_ENDS = (
    re.compile(rf"(?P<end>slow|stale) {_SECONDS}"),
    re.compile(rf"(?P<end>hang|idle-close)(?: {_SECONDS})?"),
    re.compile(
        r"(?P<end>pass|drip|bare|bad item|reset|close|truncate|garbage|html|empty|success false)"
    ),
    re.compile(r"(?P<end>half-head|head then close)"),
    re.compile(rf"(?P<status>429)(?: after {_SECONDS}| (?P<variant>credits))?"),
    re.compile(r"(?P<status>401) (?P<variant>raw)"),
    re.compile(r"gone (?P<status>404)"),
    re.compile(r"(?:(?P<variant>own|gateway) )?(?P<status>[45][0-9][0-9])"),
)
WORDS = (
    "[apply, then | late SECONDS, then] one of: pass, slow SECONDS, drip, bare, idle-close [SECONDS], reset, "
    "close, hang [SECONDS], truncate, half-head, garbage, html, empty, success false, a status of 400 "
    "to 599, own STATUS, gateway STATUS, gone 404, 401 raw, 429 after SECONDS, 429 credits; for reads also: "
    "stale SECONDS, bad item"
)


@lru_cache(maxsize=1024)
def parse_step(words: str) -> Step:
    """
    Parse one step, such as ``"apply, then reset"`` or ``"late 0.5, then 500"``.

    Raises:
        ValueError: The words are not a step.  The message lists the valid ones.
    """
    prefix = _EFFECT.fullmatch(words)
    if prefix is None:
        step = _parse_end(words, words)
        if step.end == "slow":  # the service works for so long, and then answers
            step = Step(words, "slow", wait=step.number or 0.0)
        if step.end in TRUTHFUL:
            return replace(step, effect="now")
        return step
    step = _parse_end(words, prefix["end"])
    if prefix["now"]:
        return replace(step, effect="now")
    if step.end in TRUTHFUL:
        raise ValueError(f"{words!r}: a true answer cannot come before its effect")
    return replace(step, effect="late", late=float(prefix["number"] or 0))


def _parse_end(words: str, end: str) -> Step:
    """Return the step of *words*, without an effect; *end* is the part that says how the exchange ends."""
    parts = _parts_of_end(end)
    if parts is None:
        raise ValueError(f"step not understood: {words!r}; expected {WORDS}")
    name = parts["end"] or "status"
    if name == "head then close":
        name = "half-head"
    status = int(parts["status"] or 0)
    seconds = float(parts["number"]) if parts["number"] else None
    variant = parts["variant"]
    own = _is_own(variant, status)
    return Step(
        words,
        name,
        status=status,
        number=seconds,
        own=own,
        variant=variant,
    )


def _is_own(variant: str, status: int) -> bool:
    """Return whether the service itself answers, and not a gateway before it."""
    match variant:
        case "own":
            return True
        case "gateway":
            return False
        case _:
            return status not in GATEWAY


def _parts_of_end(words: str) -> defaultdict[str, str] | None:
    """Return how the exchange ends, in parts; those that *words* do not have are empty."""
    for pattern in _ENDS:
        match = pattern.fullmatch(words)
        if match is not None:
            return defaultdict(str, match.groupdict(default=""))
    return None


def parse_for(operation: str, words: str, *, write: bool) -> Step:
    """
    Parse a step for *operation*.

    Raises:
        ValueError: The words are not a step, or not one for this kind of operation.
    """
    if not isinstance(words, str):  # a script may be from JSON
        raise ValueError(f"a step is text, such as 'apply, then reset', not {words!r}")  # noqa: TRY004 - what is promised
    step = parse_step(words)
    if write and step.end in READ_ONLY:
        raise ValueError(f"{words!r} is for reads; {operation} is a write")
    if not write and words.startswith(("apply", "late")):
        raise ValueError(f"{words!r}: {operation} is a read and has no effect")
    if step.end == "bad item" and operation not in INVOICE_LISTS:
        raise ValueError(f"{words!r} is for the invoice lists, not {operation}")
    return step


Plan = Callable[[], "Faults"]  # the current one


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Faults:
    """
    A plan of random faults, drawn from the simulator's seed.

    Args:
        rate: Probability of a fault in a write, 0 to 1.
        reads: The same for reads; `None` means *rate*.
        kinds: The faults, all equally likely; see `KINDS`.
        phases: When the fault happens: before the effect (which then never happens), after it, or "late" (the
            effect follows later).  All are equally likely.
        late_up_to: Maximum delay of a late effect, in seconds.
        hang: Seconds until the service closes a hanging connection; `None`: when the client does.
        operations: The operations with faults; `None` means all.
        duplicate_deliveries: Probability that an event is delivered twice.
        reorder_deliveries: Probability that later events overtake an event.

    Raises:
        ValueError: A probability outside 0 to 1, seconds that are negative or not finite, or an unknown name.
    """

    rate: float = 0.0
    reads: float | None = None
    kinds: tuple[str, ...] = KINDS
    phases: tuple[str, ...] = PHASES
    late_up_to: float = 1.0
    hang: float | None = None
    operations: tuple[str, ...] | None = None
    duplicate_deliveries: float = 0.0
    reorder_deliveries: float = 0.0

    def __post_init__(self) -> None:
        for name in ("rate", "reads", "duplicate_deliveries", "reorder_deliveries"):
            value = getattr(self, name)
            if not (name == "reads" and value is None):
                check_probability(name, value)
        check_seconds("late_up_to", self.late_up_to)
        check_seconds("hang", self.hang, or_none=True)
        check_known("kinds", self.kinds, KINDS)
        check_known("phases", self.phases, PHASES)
        if self.operations is not None:
            check_known("operations", self.operations, sorted(BY_OPERATION))

    @classmethod
    def none(cls) -> Faults:
        """Return a plan without faults."""
        return cls()

    @classmethod
    def parse(cls, text: str) -> Faults:
        """
        Parse a plan from a command line: ``rate=0.2,kinds=500+reset,reads=0.1,late=0.4``, or ``none``.

        Raises:
            ValueError: An unknown name, or an invalid value.
        """
        found: dict[str, float | tuple[str, ...]] = {}
        known = {field.name for field in fields(cls)}
        for part, value in parts_of(text):
            name = "late_up_to" if part == "late" else part
            if name not in known:
                raise ValueError(
                    f"faults: {name!r} is not among {', '.join(sorted(known | {'late'}))}"
                )
            is_list = name in ("kinds", "phases", "operations")
            try:
                found[name] = listed(value) if is_list else float(value)
            except ValueError:
                raise ValueError(
                    f"faults: {name} takes a number, not {value!r}"
                ) from None
        return cls(**found)  # type: ignore[arg-type] # each value was made for its field above

    def _rate_of(self, operation: str, *, write: bool) -> float:
        if self.operations is not None and operation not in self.operations:
            return 0.0
        if write or self.reads is None:
            return self.rate
        return self.reads

    def draw(
        self,
        chance: random.Random,
        operation: str,
        *,
        write: bool,
    ) -> Step | None:
        """Draw the step of one arrival; `None` means no fault."""
        rate = self._rate_of(operation, write=write)
        if not rate or chance.random() >= rate:
            return None
        kind = chance.choice(self.kinds)
        if kind == "idle-close":
            return parse_step(f"idle-close {chance.randrange(1, 50) / 1000}")
        if kind == "hang" and self.hang is not None:
            kind = f"hang {digits(self.hang)}"
        phase = chance.choice(self.phases) if write else "before"
        if phase == "late":
            kind = f"late {chance.random() * self.late_up_to:.3f}, then {kind}"
        if phase == "after":
            kind = f"apply, then {kind}"
        return parse_step(kind)
