"""
Describe a history in words, as a help to repair a rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from tests.exhaustive.world import SERVER

if TYPE_CHECKING:
    from invsvc_async.reconcile.history import Event, History

_DULL = ("error", "raw_count", "own_envelope")
_TIMES = ("created_at", "last_updated")


def tell(setup: str, rule: str, history: History) -> str:
    """Return one line for the rule that is broken, and one for each event."""
    return "\n".join(
        [f"{setup} - {rule}", *(f"    {_event(event)}" for event in history)]
    )


def _event(event: Event) -> str:
    facts = {
        name: value
        for name, value in attrs.asdict(event, recurse=False).items()
        if value not in (None, False, (), frozenset()) and name not in _DULL
    }
    words = [f"{name}={_value(name, value)}" for name, value in facts.items()]
    return " ".join([type(event).__name__, *words])


def _value(name: str, value: Any) -> Any:
    if name == "stamp":
        return _time(value)
    if isinstance(value, list):
        return [_value("", each) for each in value]
    if isinstance(value, dict):
        kept = {
            key: _time(each) if key in _TIMES else each for key, each in value.items()
        }
        return {
            key: each
            for key, each in kept.items()
            if key not in ("url", "events", "owner", "version")
        }
    return value


def _time(milliseconds: Any) -> Any:
    """Return a time of the service in the walk's own seconds."""
    return (
        milliseconds / 1000 - SERVER if isinstance(milliseconds, int) else milliseconds
    )
