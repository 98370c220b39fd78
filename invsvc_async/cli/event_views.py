"""
What people are shown of the events in a receiver's store: the data, and its words.

The commands print it, and the console shows it on pages.
"""

from __future__ import annotations

import time
from base64 import b64encode
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import attrs

from invsvc_async.cli.output import age
from invsvc_async.cli.store_views import TableView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.events import StoredEvent
    from invsvc_async.events.stores import Backlog, State, StateStats

TITLES: Final = (
    "id",
    "state",
    "type",
    "key",
    "attempts",
    "handler",
    "age",
    "reason",
)
# On a terminal that is too narrow the last ones are left out.
ON_TERMINAL: Final = (
    "id",
    "state",
    "type",
    "handler",
    "attempts",
    "age",
    "reason",
    "key",
)
_NUMBERS: Final = ("id", "attempts", "age")


def facts_of(event: StoredEvent) -> WireObject:
    """Return what is known of *event*, but not its body."""
    plain = {
        name: getattr(event, name)
        for name in ("id", "state", "type", "key", "attempts", "handler")
    }
    return plain | {"received": as_date(event.received_at), "reason": event.reason}


def facts_in_words(event: StoredEvent) -> list[tuple[str, str]]:
    """Return names and texts of what people are shown of *event*."""
    facts = facts_of(event)
    return [
        (name, str(value)) for name, value in facts.items() if value not in (None, "")
    ]


def content_of(event: StoredEvent) -> WireObject:
    """Return the body of *event* under the name of its form: text, or base64."""
    body = event.body
    if body is None:
        return {"body": None}
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": b64encode(body).decode()}


def body_in_words(event: StoredEvent) -> str:
    """Return the body of *event* as people are shown it."""
    body = event.body
    if body is None:
        return "(deleted)"
    return body.decode(errors="backslashreplace")


def events_table(
    found: Sequence[StoredEvent], titles: Sequence[str] = TITLES
) -> TableView:
    """Return events as a table with the columns *titles*."""
    rows = [
        facts_of(event) | {"age": age(time.time() - event.received_at)}
        for event in found
    ]
    cells = [[str(row[title] or "") for title in titles] for row in rows]
    right = [titles.index(each) for each in _NUMBERS]
    return TableView(
        titles=titles,
        rows=cells,
        right=right,
    )


def counts_of(found: Mapping[State, StateStats]) -> WireObject:
    """Return the counts of each state as JSON values."""
    return {
        state: attrs.asdict(one) | {"oldest": as_date(one.oldest)}
        for state, one in found.items()
    }


def counts_table(found: Mapping[State, StateStats]) -> TableView:
    """Return the counts of each state as a table."""
    rows = [
        (state, number_in_words(one), as_date(one.oldest) or "")
        for state, one in found.items()
    ]
    return TableView(
        titles=("state", "events", "oldest"),
        rows=rows,
        right=(1,),
    )


def backlog_in_words(backlog: Backlog) -> str:
    """Return what is due now, in words."""
    from invsvc_async.events.stores import COUNTED

    many = " or more" if backlog.due >= COUNTED else ""
    late = f", for up to {backlog.late:,.0f} s" if backlog.due else ""
    return f"{backlog.due:,}{many} due now{late}"


def number_in_words(stats: StateStats) -> str:
    """Return a number of events, with a mark if there are more."""
    if stats.has_more:
        return f"{stats.count:,}+"
    return f"{stats.count:,}"


def as_date(seconds: float | None) -> str | None:
    """Format a time in seconds since the epoch as a date and time in UTC, to the second."""
    if seconds is None:
        return None
    return (
        datetime.fromtimestamp(seconds, UTC)
        .isoformat(timespec="seconds")
        .replace("+00:00", "Z")
    )
