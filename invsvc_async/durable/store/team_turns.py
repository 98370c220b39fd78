"""
The teams whose writes wait in a store, and the next writes of each.

A dispatcher reads the lanes that it owns in the order of places.  With many writes of one team in front,
those of others would wait for all of them, so it also asks for the next ones of each team.  Of a thing, only
the first write that is not done is among those: whatever teams its writes name, they keep their order.

The index ``open_of_team`` has what waits in the order of teams, and then of places.  Each team is found by
one look into it, however many writes there are; a look at a team's writes ends after those that are wanted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from invsvc_async.durable.store.sqlite import SqliteStore
from invsvc_async.durable.store.statements import entry_sql
from invsvc_async.storage.dialect import in_parts

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.storage.dialect import Script


_MORE_LOOKED_AT: Final = 200  # of a team: some wait for others, or are in other lanes


async def teams_after(
    store: Store,
    team: str | None,
    most: int,
) -> list[str]:
    """Return up to *most* teams of writes that are not done: those after *team*, then from the first on."""
    found: list[str] = []
    if team is not None:
        found = await _teams(store, entry_sql.TEAMS_AFTER, team, most)
    if len(found) < most:
        found += await _teams(store, entry_sql.TEAMS_FROM, "", most - len(found))
    return [*dict.fromkeys(found)]


async def _teams(
    store: Store,
    text: str,
    team: str,
    most: int,
) -> list[str]:
    return [found for (found,) in await store.rows(text, team, most)]


async def next_of_teams(
    store: Store,
    wanted: Mapping[str, int],
    lanes: Collection[int],
    known: Collection[int],
) -> list[Entry]:
    """
    Return the next entries of each team in *lanes*, as many as are *wanted*.

    Those that the caller has already (*known*, by number) are left out, and those that have to wait for an
    earlier one to their thing.  So of each thing there is at most one, and their order does not matter.
    """
    if not wanted:
        return []
    if isinstance(store, SqliteStore):
        seqs = await store.run(partial(_next_in_file, wanted, known))
    else:
        looked = _looked_at(max(wanted.values()), known)
        rows = await store.rows(
            entry_sql.NEXT_OF_TEAMS, [*wanted.items()], [*lanes], [*known], looked
        )
        seqs = [seq for (seq,) in rows]
    ask = partial(store.entries, entry_sql.STILL_READY)
    return await in_parts(ask, sorted(seqs))


def _looked_at(many: int, known: Collection[int]) -> int:
    """Return how many writes of a team are looked at to find *many* of them that may be sent."""
    return many + len(known) + _MORE_LOOKED_AT


def _next_in_file(
    wanted: Mapping[str, int], known: Collection[int]
) -> Script[list[int]]:
    left_out = {*known}
    seqs: list[int] = []
    for team, many in wanted.items():
        rows = yield entry_sql.NEXT_OF_TEAM_IN_FILE, (team, _looked_at(many, known))
        seqs += [seq for (seq,) in rows if seq not in left_out][:many]
    return seqs
