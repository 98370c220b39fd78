"""Whether a receiver keeps up with its deliveries."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from invsvc_async.events.receiving.stats import Health

if TYPE_CHECKING:
    from invsvc_async.events.receiving.stats import Tally
    from invsvc_async.events.receiving.worker import InboxWorker
    from invsvc_async.events.stores import Backlog, Store


async def health_of(
    store: Store,
    worker: InboxWorker,
    tally: Tally,
    *,
    within: float,
    behind: float,
) -> Health:
    """Return the problems, and the backlog of *store*, which has *within* seconds to answer."""
    problems: list[str] = []
    if not worker.is_running:
        problems.append("no worker runs: use 'async with receiver'")
    problems += tally.problems
    if overdue := worker.overdue:
        problems.append(f"handlers that did not end at their timeout: {overdue}")
    backlog: Backlog | None = None
    try:
        async with asyncio.timeout(within):
            backlog = await store.backlog()
            unread = await tally.unread.problem(store, backlog.dead)
    except Exception as error:  # noqa: BLE001 - a user-supplied store may raise anything
        problems.append(f"the event store does not answer ({type(error).__name__})")
    else:
        if unread is not None:
            problems.append(unread)
    tally.backlog = backlog
    if backlog is not None and backlog.late > behind:
        problems.append(f"{backlog.due} events are due, for up to {backlog.late:.0f} s")
    return Health(problems=tuple(problems), backlog=backlog)
