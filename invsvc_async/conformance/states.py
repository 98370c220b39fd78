"""The states of things over time, as the service's ledger tells them."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from math import inf
from typing import TYPE_CHECKING

from invsvc_async.simulator.json_records import is_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.simulator import Entry


def effect_at(entry: Entry) -> float:
    """Return the time of the effect of *entry*."""
    if entry.applied_at is None:
        return inf
    return entry.applied_at


class States:
    """States of each thing over time, after the effects of all writers; *before* has them at the start."""

    def __init__(self, ledger: Iterable[Entry], before: Mapping[str, Wire]) -> None:
        self._before = before
        # Each effect, and the state after it.
        self._past: defaultdict[str, list[tuple[Entry, Wire]]] = defaultdict(list)
        effects = [each for each in ledger if each.applied_at is not None]
        for each in sorted(effects, key=effect_at):
            thing = each.target or ""
            past = self._past[thing]
            state = past[-1][1] if past else before.get(thing)
            past.append((each, _changed(state, each)))

    def between(
        self,
        thing: str,
        since: float,
        until: float,
    ) -> list[Wire]:
        """Return every state of *thing* from *since* to *until*; ``None`` means that it did not exist."""
        past = self._past.get(thing, [])
        first, last = (
            bisect_right(past, at, key=lambda each: effect_at(each[0]))
            for at in (since, until)
        )
        state = past[first - 1][1] if first else self._before.get(thing)
        return [state, *(after for _, after in past[first:last])]


def _changed(past: Wire, entry: Entry) -> Wire:
    if entry.operation.endswith(".delete"):
        return None
    body: Wire = entry.body if entry.fields is None else entry.fields
    changes = body if is_object(body) else {}
    if entry.operation == "webhooks.create":
        # The default is active; its body may say otherwise.
        return {"status": "active", **changes}
    return {**(past or {}), **changes}
