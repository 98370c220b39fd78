"""
The things that version 0.1.0 called otherwise.

Writes wait for each other by the name of their thing.  So whoever opens a store of 0.1.0 to send gives its
things their names of today, once.  Otherwise, a write that was stored under the earlier name would be in no
order with those that have the name of today.  It takes a client, because only its credential tells which team
is its own; a command that changes a batch needs none.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from invsvc_async.durable.store.fact_names import NAMES, NAMES_OF_TODAY
from invsvc_async.durable.store.facts import Facts
from invsvc_async.durable.store.lanes import lane_for
from invsvc_async.durable.store.statements import key_sql, store_sql
from invsvc_async.writes.line_names import earlier_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.durable.store.opening import Store
    from invsvc_async.storage.dialect import Script
    from invsvc_async.transport.client_core import ClientCore


async def use_names_of_today(store: Store, core: ClientCore) -> None:
    """
    Rename the things in *store* that 0.1.0 called otherwise than *core* does, unless that was done.

    Whoever sends calls this before it takes a lane.

    Raises:
        JournalError: The store cannot be used.
    """
    names = earlier_names(core)
    if not names:
        return
    if await Facts(store).get(NAMES) is None:
        await store.run(partial(_rename_things, names, store.how.lanes))


def _rename_things(names: Mapping[str, str], lanes: int) -> Script[None]:
    """
    Rename the things in *names*, from the earlier name to that of today, unless that was done.

    In a store with so many *lanes*, its writes move to the lane of that name.  In the journal of a client,
    which has 0, they stay.
    """
    is_first = yield store_sql.NOTE_ONCE, (NAMES, NAMES_OF_TODAY)
    if not is_first:
        return
    for earlier, name in names.items():
        lane = lane_for("", name, lanes) if lanes else 0
        yield key_sql.RENAME_OPEN, (earlier, name, lane)
        yield key_sql.RENAME_NOT_APPLIED, (earlier, name, lane)
        yield key_sql.MERGE_STATES, (earlier, name)
        yield key_sql.DELETE_STATE, (earlier,)
