"""
The state of the service: teams, users and, for each team and data mode, a book.

Stored records are not changed in place but replaced by changed copies, so that past states stay readable.
"""

from __future__ import annotations

import random
import time
import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from invsvc_async.simulator.json_records import Json, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from invsvc_async.simulator.stores import Stores


Version = Literal["v1", "v1.1", "v2"]
JourneyReads = Literal["draft", "published", "off"]
_AS_IT_IS = (
    "limit order_by order created_after created_before client_id client_tax_id page"
)
NAMES: Mapping[str, str] = {name: name for name in _AS_IT_IS.split()} | {
    "cursor": "next",
    "dbtable_limit": "limit",
    "dbtable_state": "state",
}
PAST_KEPT = 60.0  # seconds for which past states are kept for stale reads


def seeded(seed: int, part: str) -> random.Random:
    """Return a random generator for one *part* of a simulator, independent of the others."""
    return random.Random(f"{seed}/{part}")


@dataclass(slots=True)
class ServiceClock:
    """
    The service's clock: the machine's plus `offset` seconds, which may change at any time.

    `wall` and `steady` return the machine's time of day and its monotonic time, in seconds.
    """

    offset: float = 0.0
    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic

    def now_ms(self) -> int:
        """Return the service's time in epoch milliseconds, as in ``timestamp``."""
        return int((self.wall() + self.offset) * 1000)


class Shelf:
    """Records of one kind by id, with their states during the last `PAST_KEPT` seconds."""

    __slots__ = ("_steady", "_undo", "items")

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self.items: dict[str, Record] = {}
        self._steady = steady
        self._undo: deque[tuple[float, str, Record | None]] = deque()

    def seed(self, record: Record, key: str = "id") -> Record:
        """Store *record* as if it had always existed."""
        self.items[record[key]] = record
        return record

    def put(self, key: str, record: Record) -> Record:
        """Store *record* now, in place of the previous one."""
        self._remember(key)
        self.items[key] = record
        return record

    def change(self, key: str, changes: Mapping[str, Json]) -> Record:
        """Store the record with *changes* now."""
        return self.put(key, self.items[key].with_changes(changes))

    def remove(self, key: str) -> None:
        """Remove the record now."""
        self._remember(key)
        del self.items[key]

    def as_of(self, past: float | None) -> dict[str, Record]:
        """Return the records as they were at the monotonic time *past*; `None` means now."""
        if past is None:
            return self.items
        shown = dict(self.items)
        for at, key, before in reversed(self._undo):
            if at <= past:
                break
            if before is None:
                shown.pop(key, None)
            else:
                shown[key] = before
        return shown

    def _remember(self, key: str) -> None:
        now = self._steady()
        while self._undo and self._undo[0][0] < now - PAST_KEPT:
            self._undo.popleft()
        self._undo.append((now, key, self.items.get(key)))


@dataclass(slots=True)
class Subscription:
    """What deliveries to a webhook have.  The `Webhook` resource does not show these values."""

    secret: str
    headers: dict[str, str] = field(default_factory=dict[str, str])
    version: Version = "v1"


class Book:
    """Everything that a team has in one data mode."""

    def __init__(
        self,
        team: str,
        steady: Callable[[], float],
        *,
        livemode: bool,
    ) -> None:
        self.team: str = team
        self.livemode: bool = livemode
        self.journeys: Shelf = Shelf(steady)
        self.webhooks: Shelf = Shelf(steady)
        self.invoices: Shelf = Shelf(steady)
        self.downloads: Shelf = Shelf(steady)
        self.links: Shelf = Shelf(steady)
        self.sheets: Shelf = Shelf(steady)
        self.published: dict[str, Record] = {}
        self.receivers: dict[str, Subscription] = {}  # by the id of the webhook
        self.packages: dict[str, bytes] = {}
        self.retentions: dict[str, list[Record]] = {}
        self.reminders: dict[tuple[str, str], Record] = {}
        self.mappings: list[Record] = []


@dataclass(slots=True)
class Account:
    """What a team's plan includes.  The `Team` resource does not show it."""

    billing: str
    connect: bool = False
    api_access: bool = True
    features: set[str] = field(
        default_factory=lambda: {"multipleIssuerAccounts", "suppliers"}
    )


class ServiceState:
    """The whole state of the service, in memory."""

    def __init__(
        self,
        *,
        seed: int,
        names: Mapping[str, str],
        journey_reads: JourneyReads,
        clock: ServiceClock,
        stores: Stores,
    ) -> None:
        if unknown := set(names) - set(NAMES):
            raise ValueError(
                f"names: {', '.join(sorted(unknown))} is not among {', '.join(sorted(NAMES))}"
            )
        if journey_reads not in (readings := get_args(JourneyReads)):
            raise ValueError(
                f"journey_reads must be one of {', '.join(readings)}, not {journey_reads!r}"
            )
        self.clock = clock
        self.names: dict[str, str] = {**NAMES, **names}
        self.journey_reads = journey_reads
        self.random: random.Random = seeded(seed, "state")
        self.stores = stores
        self.chance: random.Random = seeded(seed, "stores")
        self._seed = seed
        self.teams: Shelf = Shelf(self.clock.steady)
        self.accounts: dict[str, Account] = {}
        self.users: Shelf = Shelf(self.clock.steady)
        self.preferences: dict[tuple[str, str], Record] = {}
        self.bases: dict[tuple[str, str], list[Record]] = {}
        self._books: dict[tuple[str, bool], Book] = {}

    def book(self, team: str, *, livemode: bool) -> Book:
        """Return the book of *team* in one data mode, made at first use."""
        key = (team, livemode)
        if key not in self._books:
            self._books[key] = Book(team, self.clock.steady, livemode=livemode)
        return self._books[key]

    def receiver(self, webhook_id: str) -> Subscription:
        """Return what deliveries to a webhook have."""
        for book in self._books.values():
            if webhook_id in book.webhooks.items:
                return book.receivers[webhook_id]
        raise ValueError(f"no webhook {webhook_id!r}")

    def seeded(self, part: str) -> random.Random:
        """Return a random generator for one *part*, the same at each call."""
        return seeded(self._seed, part)

    def new_id(self, prefix: str) -> str:
        """Make a unique id."""
        return f"{prefix}{self.random.getrandbits(96):024x}"

    def new_folio(self) -> str:
        """Make a fiscal folio, an upper-case UUID."""
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4)).upper()

    def preference(self, user: str, team: str) -> Record:
        """Return the preferences of *user* for *team*, by default live mode."""
        usual = {
            "testmode": False,
            "search_collection": "invoices",
            "invoices_order_by": "timestamp",
        }
        return self.preferences.get((user, team)) or Record(team_id=team, **usual)
