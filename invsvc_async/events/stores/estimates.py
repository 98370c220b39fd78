"""The number of events in a large store, estimated from samples: counting them would take seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from invsvc_async.events.stores import EXACT, StateStats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from invsvc_async.events.stores import State

__all__ = ["SAMPLE", "WALKED", "Sampled", "estimate", "estimated", "needed", "starts"]

Sampled: TypeAlias = Literal["open", "dead", "all"]
SAMPLE: Final = 100  # rows of one sample
WALKED: Final = 5_000  # rows that a statement passes which no index leads to the right ones
_SAMPLES: Final = 100
_BY_ID: Final = ("open", "dead")  # states whose ids an index has in order


def starts(first: int, last: int) -> list[int]:
    """Return the ids at which samples start, evenly from *first* to *last*."""
    return sorted({first + (last + 1 - first) * number // _SAMPLES for number in range(_SAMPLES)})


def estimate(samples: Mapping[int, Sequence[int]], last: int) -> int:
    """
    Return how many rows there are up to the id *last*.

    *samples* has the first ids, at most ``SAMPLE``, from each start on.  What they say of how dense ids are
    counts up to the next start.
    """
    found = 0.0
    bounds = sorted(samples)
    for start, end in zip(bounds, [*bounds[1:], last + 1], strict=True):
        ids = samples[start]
        own = sum(number < end for number in ids)
        is_cut = len(ids) == SAMPLE and own == SAMPLE
        found += own * (end - start) / (ids[-1] + 1 - start) if is_cut else own
    return round(found)


def needed(found: Mapping[State, StateStats]) -> list[Sampled]:
    """Return what to estimate, because more than ``EXACT`` were found."""
    large: list[Sampled] = [state for state in _BY_ID if found[state].count > EXACT]
    return [*large, "all"] if found["handled"].count > EXACT else large


def estimated(found: Mapping[State, StateStats], estimates: Mapping[Sampled, int]) -> dict[State, StateStats]:
    """Replace the counts above ``EXACT`` by *estimates*; handled ones are what is left of all."""
    result = dict(found)
    for state in _BY_ID:
        if state in estimates:
            result[state] = StateStats(max(EXACT, estimates[state]), found[state].oldest, is_estimate=True)
    if "all" in estimates:
        count = estimates["all"] - sum(result[state].count for state in _BY_ID)
        result["handled"] = StateStats(max(EXACT, count), found["handled"].oldest, is_estimate=True)
    return result
