"""
What the last write left of each thing, and which webhooks creates made.

A store has one row for each thing that a write of a batch, an outbox or a key has changed; creates leave
none.  What writes without keys leave is noted only where keys are used (``PUT_UNKEYED_AND_NOTE``).  In
PostgreSQL, there is a row for each thing of a key that was claimed, too: it is the lock of the order there
(``LOCK_THING``).  Rows contain no secrets.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from invsvc_async.durable.store.statements import key_sql
from invsvc_async.storage.dialect import in_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.durable.store.opening import Store


class Left(msgspec.Struct, frozen=True):
    """
    What one write left of *thing*.

    ``state`` is the last known state as JSON text (``{}`` if the thing is gone, ``None`` if it is not known),
    as the members of *team* see it; ``stamp`` the time of the answer that showed it (server ms).  ``place``
    is that of the last write that may have had an effect (``order``); it is 0 in what is given to a store,
    which knows it.
    """

    thing: str
    team: str | None = None
    state: str | None = None
    stamp: int | None = None
    place: int = 0


async def last_writes(store: Store, things: Sequence[str]) -> list[Left]:
    """Return what the last finished write to each of *things* left of it."""
    rows = await in_parts(partial(store.rows, key_sql.LAST_WRITES), things)
    return [Left(*row) for row in rows]


async def webhooks_made_for(
    store: Store, things: Sequence[str]
) -> list[tuple[str, str]]:
    """Return which webhooks untagged creates of the URLs *things* made, and the keys of the creates."""
    rows = await in_parts(partial(store.rows, key_sql.WEBHOOKS_MADE), things)
    return [(claim, key) for claim, key in rows]


async def claims_among(store: Store, claims: Sequence[str]) -> list[tuple[str, str]]:
    """Return those of *claims* that untagged creates have, and the keys of the creates."""
    rows = await in_parts(partial(store.rows, key_sql.CLAIMS_ON), claims)
    return [(claim, key) for claim, key in rows]
