"""Turns among teams: of those that have writes in a store, and of items that are ready."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from itertools import chain, zip_longest
from math import ceil
from typing import TYPE_CHECKING, Final

from invsvc_async.durable.store.team_turns import next_of_teams, teams_after

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from invsvc_async.batch.item import Item
    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.opening import Store


_TEAMS: Final = 50  # that one read looks at; the next read goes on behind them
_LEAST: Final = 4  # writes of each of them that may be ready or under way
_SOON: Final = 0.02  # s between reads while there is something new


def team_of(item: Item) -> str:
    """Return the team that the request of *item* names; ``""`` if it names none."""
    return item.intent.scope.team or ""


def in_turns(items: Collection[Item]) -> list[Item]:
    """
    Return *items* in turns: one of each team, then the next one of each.

    Each team keeps its order, and so does each thing: its items count as those of the team of its first one.
    """
    if len({item.intent.scope.team for item in items}) < 2:
        return [*items]
    of_teams: dict[str, list[Item]] = {}
    of_things: dict[str, str] = {}
    for item in items:
        team = team_of(item)
        if (thing := item.entry.thing) is not None:
            team = of_things.setdefault(thing, team)
        of_teams.setdefault(team, []).append(item)
    rounds = zip_longest(*of_teams.values())
    return [item for item in chain.from_iterable(rounds) if item is not None]


class ReadyItems:
    """
    The items that may begin, of which teams take turns; *per_team* is how many of one may be under way.

    An item is under way from ``take`` until ``end``.
    """

    def __init__(self, per_team: int | None) -> None:
        self._per_team = per_team
        # By team, that whose turn is next first; no queue is empty.
        self._queues: OrderedDict[str, deque[Item]] = OrderedDict()
        self._under_way: Counter[str] = Counter()
        self._many = 0

    def __len__(self) -> int:
        return self._many

    @property
    def startable(self) -> int:
        """How many of them could begin, if there were slots."""
        if self._per_team is None:
            return self._many
        return sum(
            min(len(queue), max(self._per_team - self._under_way[team], 0))
            for team, queue in self._queues.items()
        )

    def active(self, team: str) -> int:
        """Return how many items of *team* are ready or under way."""
        return len(self._queues.get(team, ())) + self._under_way[team]

    def append(self, item: Item) -> None:
        """Add *item*, as the last one of its team."""
        team = team_of(item)
        if (queue := self._queues.get(team)) is None:
            queue = self._queues[team] = deque()
        queue.append(item)
        self._many += 1

    def append_first(self, item: Item) -> None:
        """Add *item* as the first of all: it was under way."""
        team = team_of(item)
        self._queues.setdefault(team, deque()).appendleft(item)
        self._queues.move_to_end(team, last=False)
        self._many += 1

    def first(self) -> Item | None:
        """Return the item whose turn it is; ``None`` if no team may have another one under way."""
        for team, queue in self._queues.items():
            if self._per_team is None or self._under_way[team] < self._per_team:
                return queue[0]
        return None

    def take(self, item: Item) -> None:
        """Note that *item*, the first, is under way, so that the next turn is of another team."""
        team = team_of(item)
        queue = self._queues[team]
        queue.popleft()
        if queue:
            self._queues.move_to_end(team)
        else:
            del self._queues[team]
        self._many -= 1
        self._under_way[team] += 1

    def end(self, item: Item) -> None:
        """Note that *item* is not under way any more."""
        team = team_of(item)
        self._under_way[team] -= 1
        if not self._under_way[team]:
            del self._under_way[team]


class TeamTurns:
    """What is read of *store* for teams whose turn it is; those in *ready* need no more for now."""

    def __init__(
        self,
        store: Store,
        ready: ReadyItems,
        concurrency: int,
    ) -> None:
        self._store = store
        self._ready = ready
        self._concurrency = concurrency
        self._last: str | None = None  # the team that was looked at last
        self._read_at = 0.0  # loop time
        self.has_news: bool = False  # since then

    @property
    def is_due(self) -> bool:
        """Whether the last read is so long ago that the next one may be made."""
        return asyncio.get_running_loop().time() - self._read_at >= _SOON

    async def read(
        self,
        lanes: Collection[int],
        held: Collection[int],
        yet_to_add: Sequence[Item],
    ) -> list[Entry]:
        """
        Return the next entries, in *lanes* and not of *held*, of teams that have less than their share here.

        Those that were read and are *yet_to_add* count as theirs.  With one team, there are no turns: none
        are returned.
        """
        self._read_at = asyncio.get_running_loop().time()
        self.has_news = False
        teams = await teams_after(self._store, self._last, _TEAMS)
        self._last = teams[-1] if teams else None
        if len(teams) < 2:
            return []
        share = max(_LEAST, ceil(2 * self._concurrency / len(teams)))
        waiting = Counter(map(team_of, yet_to_add))
        wanted = {
            team: share - active
            for team in teams
            if (active := self._ready.active(team) + waiting[team]) < share
        }
        known = {*held, *(item.entry.seq for item in yet_to_add)}
        return await next_of_teams(self._store, wanted, lanes, known)
