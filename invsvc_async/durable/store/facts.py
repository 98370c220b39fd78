"""What holds for a whole store of writes, by name."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from invsvc_async.durable.store.statements import store_sql
from invsvc_async.errors import InvalidRequestError, JournalError
from invsvc_async.storage.dialect import in_parts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from invsvc_async.durable.store.opening import Store
    from invsvc_async.transport.client_core import ClientCore


async def now_of(store: Store) -> float:
    """Return the time by the clock of *store*, in seconds; that of a file is this machine's."""
    return float((await store.rows(store_sql.NOW))[0][0])


class Facts:
    """The facts of *store*."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # The last change that was begun; the next one waits for it.
        self._changing: asyncio.Task[None] | None = None

    async def get(self, name: str, new: str | None = None) -> str | None:
        """Return the fact *name*; if it is unknown, set it to *new* first, unless *new* is ``None``."""
        if new is not None:
            await self._store.rows(store_sql.SET_NEW_FACT, name, new)
        found = await self._store.rows(store_sql.GET_FACT, name)
        if not found:
            return None
        value: str = found[0][0]
        return value

    async def check_client(
        self,
        core: ClientCore,
        what: str,
        *,
        same_mode: bool,
        reading: bool = False,
    ) -> None:
        """
        Check that the store was begun with the base URL and credential of *core*.

        A store that has none notes both, unless it is only for *reading*.  *what* names the store in errors.

        Raises:
            InvalidRequestError: The store was begun with another base URL, or with another credential, and
                *same_mode* does not assert that both credentials have the same team and mode.
        """
        base_url = await self.get("base_url", None if reading else core.base_url)
        if base_url not in (None, core.base_url):
            used = f"this client uses {core.base_url}"
            raise InvalidRequestError(
                f"client: this {what} was begun at {base_url}, but {used}"
            )
        mine = core.credential.fingerprint(core.base_url)
        begun_with = await self.get("credential", None if reading else mine)
        are_known = None not in (mine, begun_with)
        is_another = are_known and mine != begun_with
        if is_another and not same_mode:
            raise InvalidRequestError(
                f"client: this {what} was begun with another credential",
                hint="If this one has the same team and mode, pass same_mode=True (invsvc: --same-mode).",
            )

    async def beginning(self, prefix: str) -> dict[str, str]:
        """Return the facts whose names begin with *prefix*."""
        return dict(await self._store.rows(store_sql.FACTS_BEGINNING_WITH, prefix))

    async def of(self, names: Iterable[str]) -> dict[str, str]:
        """Return the facts called *names*, as far as there are such."""
        return dict(
            await in_parts(partial(self._store.rows, store_sql.FACTS_CALLED), [*names])
        )

    def put(self, name: str, value: str | None) -> asyncio.Task[None]:
        """
        Begin to set the fact *name* to *value*, or to delete it if *value* is ``None``.

        Changes are stored in their order.  The returned task need not be awaited: it raises no errors.  If
        the store is closed or away, the change is lost.
        """
        change: tuple[str, ...] = store_sql.DELETE_FACT, name
        if value is not None:
            change = store_sql.SET_FACT, name, value
        self._changing = asyncio.create_task(self._change(change, self._changing))
        return self._changing

    async def _change(
        self, change: tuple[str, ...], before: asyncio.Task[None] | None
    ) -> None:
        # On another connection, this change could overtake the one before.
        if before is not None and not before.done():
            await asyncio.wait([before])
        with suppress(JournalError):
            await self._store.rows(*change)
