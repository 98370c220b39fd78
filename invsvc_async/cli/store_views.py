"""
What people are shown of the writes in a store: the data, and its words.

The commands print it, and the console shows it on pages.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import attrs

from invsvc_async.cli.output import age
from invsvc_async.cli.store_options import JOURNAL
from invsvc_async.writes.noted import NOTED_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from invsvc_async.batch.run_status import Status
    from invsvc_async.cli.store_options import StoreKind
    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.durable.entries import Entries
    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.noted import Chosen

# the fact with the last error of an outbox's on_result
_UNTOLD = "untold {0.done_at} {0.key}".format
_MOST: Final = 100_000  # writes that are counted
# What people call a member of a row, where that is not its name.
_TITLES: Final = {
    "basis": "evidence",
    "due_at": "due at",
    "replaced_by": "replaced by",
    "seconds": "time to verdict",
    "thing": "resource",
    "told": "acknowledged",
}
UNACKNOWLEDGED: Final = "unacknowledged"
_NUMBERS: Final = {"attempts", "age", "due_in"}
# On a terminal that is too narrow the last ones are left out.
_ON_TERMINAL: Final = (
    "namespace",
    "key",
    "operation",
    "state",
    "attempts",
    "age",
    "due_in",
    "told",
    "thing",
    *NOTED_NAMES,
)


class TableView(NamedTuple):
    """A table for people; *right* are the numbers of the columns that are aligned there."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[int]


class Listing(NamedTuple):
    """Some writes of a store, the oldest first, and how many there are in all."""

    total: int
    has_more: bool  # than are counted
    oldest: float | None  # s since the first of all was stored
    rows: list[WireObject]
    names: list[str]  # of the entries of the rows, as the store has them

    def plain(self) -> WireObject:
        """Return the writes and the counts as JSON values."""
        return {
            "total": self.total,
            "at_least": self.has_more,
            "oldest": self.oldest,
            "writes": self.rows,
        }

    def table(self, *, namespace: bool, on_terminal: bool = False) -> TableView:
        """Return the writes as a table, with or without their namespace."""
        names = self._columns(namespace=namespace)
        rows = self.rows
        if on_terminal:
            names = [name.replace("due_at", "due_in") for name in names]
            names.sort(key=_ON_TERMINAL.index)
            rows = [*map(_short, rows)]
        return TableView(
            titles=[*map(_title_of, names)],
            rows=[_cells(row, names) for row in rows],
            right=[place for place, name in enumerate(names) if name in _NUMBERS],
        )

    def _columns(self, *, namespace: bool) -> list[str]:
        """Return the members of the rows that are shown."""
        names = ["namespace"] if namespace else []
        names += ["key", "operation", "thing", "state"]
        for name in (*NOTED_NAMES, "due_at"):
            if any(name in row for row in self.rows):
                names.append(name)
        return [*names, "attempts", "age", "told"]

    @property
    def has_namespaces(self) -> bool:
        """Whether the writes are of several namespaces."""
        return len({row["namespace"] for row in self.rows}) > 1

    def words(self, advice: str) -> str:
        """Return the counts in words; *advice* says how to see more than are shown."""
        return _count_of(self, advice)


async def listing_of(
    entries: Entries,
    limit: int,
    chosen: Chosen,
) -> Listing:
    """Return at most *limit* of the *chosen* writes, whose state may also be ``"unacknowledged"``."""
    if chosen.state == UNACKNOWLEDGED:
        chosen = attrs.evolve(chosen, state="untold")
    found = await entries.first(limit, chosen)
    count, first = await entries.count(_MOST, chosen)
    errors = await entries.facts.of(_UNTOLD(each) for each in found if not each.heard)
    total = max(count, len(found))
    return Listing(
        total=total,
        has_more=total >= _MOST,
        oldest=_since(first),
        rows=[_row(entries, entry, errors.get(_UNTOLD(entry))) for entry in found],
        names=[entry.key for entry in found],
    )


async def facts_of(
    kind: StoreKind,
    entries: Entries,
    entry: Entry,
) -> WireObject:
    """Return the facts of the write of *entry*: its verdict, or why it waits."""
    from invsvc_async.batch.entries import results_in
    from invsvc_async.batch.reports.not_applied import plain_result

    row = _row(entries, entry, await entries.facts.get(_UNTOLD(entry)))
    if entry.verdict is None:
        return row | await _waits(kind, entries, entry)
    [result] = await results_in(entries, [entry])
    return plain_result(result) | row


def workers_table(found: Sequence[WireObject]) -> TableView:
    """Return workers, which are given as JSON values, as a table."""
    titles = [
        "host",
        "pid",
        "state",
        "finished",
        "per second",
        "parts",
        "last sign of life",
    ]
    forms = {
        "host": "",
        "pid": "",
        "state": "",
        "done": ",",
        "rate": ".1f",
        "lanes": "",
    }
    rows = [
        [
            *(format(each[name], form) for name, form in forms.items()),
            f"{age(each['silent'])} ago",
        ]
        for each in found
    ]
    return TableView(
        titles=titles,
        rows=rows,
        right=(1, 3, 4, 5, 6),
    )


def _count_of(found: Listing, advice: str) -> str:
    if found.has_more:
        words = f"{found.total:,} or more in all"
    else:
        words = f"{found.total:,} in all"
    shown = len(found.rows)
    if found.total > shown:
        words += f", {found.total - shown:,} of them not shown: {advice}"
    if found.oldest is None:
        return words
    return f"{words}; the oldest was stored {age(found.oldest)} ago"


def _cells(row: WireObject, names: Sequence[str]) -> list[str]:
    """Return the cells of a write in the list: the members *names* of its row, in words."""
    from invsvc_async.durable.store.noted import words_of

    words = {
        **row,
        **words_of(row),
        "thing": _resource_in(row["thing"]),
        "age": age(row["age"]),
        "told": _told_in(row),
    }
    return [_text_of(words.get(name)) for name in names]


def _told_in(row: WireObject) -> str:
    """Return in words that nobody has taken the verdict; nothing if somebody has, or if there is none."""
    if row.get("told", True):
        return ""
    if "last_error" in row:
        return f"no: {row['last_error']}"
    return "no"


def _text_of(value: object) -> str:
    if value is None:
        return ""
    return str(value)


def _short(row: WireObject) -> WireObject:
    """
    Return *row* as a list on a terminal shows it, which has one line for each write.

    Of a resource, the id is enough beside the operation. Of the error of ``on_result``, the class is shown:
    ``show`` has the words, and the time at which a write is due.
    """
    short = dict(row)
    kind, _, id_ = (row["thing"] or "").removeprefix("/").partition("/")
    if kind == row["operation"].partition(".")[0] and "/" not in id_:
        short["thing"] = id_
    if "due_at" in row:
        due = datetime.fromisoformat(row["due_at"]).timestamp()
        short["due_in"] = age(max(due - time.time(), 0.0))
    if "last_error" in row:
        short["last_error"] = row["last_error"].partition(":")[0]
    return short


def _title_of(name: str) -> str:
    """Return what people call the member *name* of a row."""
    return _TITLES.get(name, name.replace("_", " "))


def _resource_in(thing: str | None) -> str | None:
    """Return the path of a resource as people know it: that of a write without a team ends in ``None``."""
    if thing is None:
        return None
    return thing.removesuffix(" None")


def _row(
    entries: Entries,
    entry: Entry,
    error: str | None,
) -> WireObject:
    """Return what a list says of *entry*; *error* is the last one of ``on_result``."""
    from invsvc_async.durable.entries import attempts_of
    from invsvc_async.durable.store.noted import shown_of

    since = entry.done_at or entry.added_at
    key = entries.key_of(entry)
    row: WireObject = {
        "key": key,
        "namespace": entry.key.removesuffix(key).rstrip() or None,
        "operation": entry.operation,
        "thing": _without_query(entry.thing),
        "state": entry.verdict or ("to do", "sending")[entry.state],
        "attempts": attempts_of(entry),
        "since": None if since is None else as_date(since),
        "age": _since(since),
    }
    row |= shown_of(entry.noted)
    if entry.not_before is not None:
        row["due_at"] = as_date(entry.not_before)
    if entry.verdict is not None:
        row["told"] = entry.heard
        if not entry.heard and error is not None:
            row["last_error"] = error
    return row


def as_date(at: int) -> str:
    """Format a time in epoch ms as a date and time in UTC, to the second."""
    return datetime.fromtimestamp(at // 1000, UTC).isoformat()


def _is_to_come(at: int) -> bool:
    """Return whether a time in epoch ms is to come."""
    return at / 1000 > time.time()


def _since(then: int | None) -> float | None:
    """Return the seconds since a time in epoch ms."""
    if then is None:
        return None
    return max(round(time.time() - then / 1000, 3), 0.0)


def _without_query(thing: str | None) -> str | None:
    """Return the path of a resource: its query may have a token."""
    if thing is None:
        return None
    return thing.partition("?")[0]


def facts_in_words(row: WireObject) -> Iterator[tuple[str, str]]:
    """Yield names and texts for people: nothing empty, nothing twice, and times as dates."""
    is_finished = "verdict" in row
    for name, value in row.items():
        is_told_twice = is_finished and name in ("state", "since")
        if name == "done_at":
            at = datetime.fromtimestamp(value / 1000, UTC)
            yield "done at", at.isoformat(sep=" ", timespec="milliseconds")
        elif name == "thing":
            yield _title_of(name), _resource_in(value) or ""
        elif value not in (None, "", [], False) and not is_told_twice:
            yield _title_of(name), _words(value)
    if not row.get("told", True):
        yield _title_of("told"), "no: nobody has taken the verdict yet"


def _words(value: object) -> str:
    match value:
        case dict():
            words = [
                f"{name.replace('_', ' ')} {_words(each)}"
                for name, each in value.items()
                if each is not None
            ]
            return ", ".join(words)
        case bool():
            if value:
                return "yes"
            return "no"
        case float():
            if value > 1:
                return age(value)
            return f"{value:.3f} s"
        case list():
            return ", ".join(map(str, value))
        case _:
            return str(value)


async def _waits(
    kind: StoreKind,
    entries: Entries,
    entry: Entry,
) -> WireObject:
    """Return why an open write has no verdict yet, and who has it."""
    from invsvc_async.batch.run_status import RUN, statuses_in
    from invsvc_async.durable.entries import owner_of_lane
    from invsvc_async.durable.store.order import keys_before

    ahead = await keys_before(entries.store, entry.thing, entry.place)
    owner = await owner_of_lane(entries.store, entry.lane)
    runs = statuses_in(await entries.facts.beginning(RUN))
    if entries.lanes <= 1:
        runs = runs[:1]
    limits = sorted(_limits_of(runs))
    why = _why_open(entry, has_earlier=bool(ahead))
    if owner is None or not owner.alive:
        why += f"; {_without_process(kind)}"
    elif limits:
        why += f"; limited by {', '.join(limits)}"
    waits: WireObject = {"waits": why, "after": ahead, "process": None}
    if owner is not None:
        waits["process"] = owner._asdict()
    return waits


def _why_open(entry: Entry, *, has_earlier: bool) -> str:
    """Return why a write has no verdict yet, apart from the process that is to send it."""
    if entry.state:
        return "it may have been sent: its answer is awaited, or its fate is found out by reads"
    reasons: list[str] = []
    if entry.not_before is not None and _is_to_come(entry.not_before):
        reasons.append(f"it is due at {as_date(entry.not_before)}")
    if has_earlier:
        reasons.append("earlier writes to the same resource are open")
    if not reasons:
        return "its turn has not come"
    return "; ".join(reasons)


def _without_process(kind: StoreKind) -> str:
    if kind is JOURNAL:
        return "no process has it"
    return "no process sends it: start one"


def _limits_of(runs: Iterable[Status]) -> set[str]:
    """Return what limits the current *runs*."""
    return {
        each.limited_by
        for each in runs
        if each.limited_by is not None and each.is_current
    }
