"""The lane of this process in the journal of a client, and the signs of life that keep it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from invsvc_async.concurrency.clock import SystemClock
from invsvc_async.durable.leases import Lane, Leases
from invsvc_async.durable.store.lanes import end_lane, new_lane
from invsvc_async.durable.store.members import forget as forget_member
from invsvc_async.durable.store.tables import in_version
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from invsvc_async.durable.removal import Removal
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.transport.client_core import ClientCore


class OwnLane:
    """
    The lane of this process in *store*, the journal of the client of *core*.

    There is one lane at a time. It is lost for good if another process took this one for dead; ``renew`` then
    makes the next.
    """

    def __init__(
        self,
        store: Store,
        core: ClientCore | None,
        leases: Leases,
        lane: Lane,
    ) -> None:
        self._store = store
        self._core = core
        self.leases: Leases = leases
        self.lane: Lane = lane
        self._making = asyncio.Lock()

    @classmethod
    async def made(cls, store: Store, core: ClientCore | None) -> OwnLane:
        """Store the first sign of life of this process, and make its lane."""
        clock = SystemClock() if core is None else core.clock
        leases = Leases(store, clock, patience=store.patience)
        await leases.forget_the_dead()
        await leases.beat()
        return cls(store, core, leases, await _new_lane(store, core, leases))

    async def renew(self) -> None:
        """Store a sign of life, which shows whether the lane is lost; if so, make another lane."""
        async with self._making:
            if self.lane.lost or self.lane.doubtful:
                await self.leases.beat()
            if self.lane.lost:
                self.lane = await _new_lane(self._store, self._core, self.leases)

    async def leave(self, removal: Removal) -> None:
        """Store what is pending, also of *removal*, and release the lane, if the database answers."""
        lane = self.lane
        with suppress(JournalError):
            async with self._store.hurried():
                if removal.task is not None:
                    await asyncio.wait([removal.task])
                await self._store.idle()
                await self._store.run(partial(end_lane, lane.number, lane.token))
                await forget_member(self._store, self.leases.name)


def credential_of(core: ClientCore | None) -> str:
    """Return what tells the credential of *core* from others in a journal; ``""`` if nothing does."""
    if core is None:
        return ""
    return core.credential.fingerprint(core.base_url) or ""


async def _new_lane(
    store: Store,
    core: ClientCore | None,
    leases: Leases,
) -> Lane:
    token = leases.token()
    making = partial(new_lane, token, credential_of(core))
    number = await store.run(partial(in_version, store.how, store.version, making))
    return leases.hold(number, token)
