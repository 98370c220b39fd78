"""
The record of what really happened to every write, and of how many requests arrived.

Tests judge verdicts by it, so the client under test must not see it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.simulator.json_records import Json
    from invsvc_async.simulator.stores import How


SENDER = "X-Write-Id"  # a header by which tests attribute requests; the service itself ignores it


@dataclass(slots=True, kw_only=True)
class Entry:
    """
    A request that reached the service completely, or a change by somebody else.

    Times are in seconds of the monotonic clock.  The fields are updated as things happen: a late effect sets
    `applied_at` when it happens.
    """

    operation: str
    number: int = 0  # in the order of arrival, from 1
    path_id: str | None = None  # the last id of the path
    body: Json = None  # parsed, or the raw text if it is not JSON
    query: dict[str, str] | None = None
    team: str | None = None  # `None` if authentication failed
    livemode: bool | None = None
    received_at: float = 0.0
    applied_at: float | None = None
    late: bool = False  # the effect happened after the answer, or is pending
    fault: str | None = None  # the step that was executed
    answered: int | None = None  # the status of a complete answer
    by: Literal["client", "other"] = "client"
    target: str | None = None  # the id of the resource that was created or changed
    refused: bool = False  # the service answered with a definite 4xx, without an effect
    # the answer was sent, or the connection was closed without one
    ended_at: float | None = None
    # of a journey or webhook, once applied: "as sent", in "other words", "in part"
    stored: How | None = None
    fields: dict[str, Json] | None = None  # of it, what was stored, as it was stored
    # the header `SENDER` of the request: which write of the client sent it
    sender: str | None = None

    @property
    def applied(self) -> bool:
        """Whether the effect has happened, whole or in part."""
        return self.applied_at is not None


class Ledger:
    """Entries in the order of arrival: writes in `entries`, reads in `reads`."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self.steady = steady
        self.entries: list[Entry] = []
        self.reads: list[Entry] = []
        self.newest: int = 0  # the number of the last arrival
        self._arrived: Counter[str] = Counter()
        self._news = asyncio.Event()

    def arrivals(self, operation: str | None = None) -> int:
        """Return how many requests of *operation*, or of all, arrived completely (head and body)."""
        if operation is None:
            return self._arrived.total()
        return self._arrived[operation]

    def effects(self, operation: str | None = None) -> list[Entry]:
        """Return the entries whose effect has happened, including those of somebody else."""
        return [
            each
            for each in self.entries
            if each.applied and operation in (None, each.operation)
        ]

    def find(
        self, operation: str, matches: Callable[[Json], bool] = lambda _body: True
    ) -> list[Entry]:
        """Return the writes of *operation* whose parsed body *matches*."""
        return [
            entry
            for entry in self.entries
            if entry.operation == operation and matches(entry.body)
        ]

    async def arrived(self, operation: str, n: int = 1) -> None:
        """Wait until at least *n* requests of *operation* have arrived since the start."""
        while self._arrived[operation] < n:
            self._news.clear()
            await self._news.wait()

    def add(self, entry: Entry, *, write: bool) -> None:
        """Record a request that has been read completely, or a change by somebody else."""
        self.newest += 1
        entry.number = self.newest
        entry.received_at = self.steady()
        if write:
            self.entries.append(entry)
        else:
            self.reads.append(entry)
        if entry.by == "client":
            self._arrived[entry.operation] += 1
            self._news.set()
