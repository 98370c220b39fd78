"""A shared batch that is only used in its place: see ``durable.restored``."""

from __future__ import annotations

from typing import Any, ClassVar

from invsvc_async.batch.journals.postgres import PostgresBatch
from invsvc_async.batch.restored import LATEST, THROUGH
from invsvc_async.durable.restored import FACT, PlaceError, mark, place_of, wrong_with_place

__all__ = ["PlacedBatch"]

_SET = "INSERT INTO facts VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_FACT = "SELECT value FROM facts WHERE name = $1 FOR UPDATE"


class PlacedBatch(PostgresBatch):
    """
    A journal in PostgreSQL that is only used in its place.

    With *restored*, it is accepted in another place, and marked as one that may lack sends. With *moved*, it
    is accepted as complete. With *reading*, its place does not matter.
    """

    it: ClassVar[str] = "the batch"  # what errors advise to run

    def __init__(
        self,
        address: str,
        *,
        create: bool = True,
        reading: bool = False,
        restored: bool = False,
        moved: bool = False,
    ) -> None:
        super().__init__(address, create=create)
        self._reading, self._restored, self._moved = reading, restored, moved
        self._place: dict[str, str] | None = None  # once it is checked

    async def open(self) -> None:
        """
        Connect, create the tables if they do not exist, and check the place.

        Raises:
            JournalError: The database cannot be used, the journal is of a newer version, or it may lack
                sends that were made.

        """
        await super().open()
        if not self._reading:
            try:
                await self.check_place()
            except BaseException:
                await self.aclose()
                raise

    async def check_place(self) -> None:
        """
        Check the place, and use connections to no other one from now on.

        Raises:
            PlaceError: The journal may lack sends that were made.
            JournalError: The database stayed away.

        """
        self._place = await self.ask(self._checked_place)

    async def connected(self, connection: Any) -> None:  # Any: asyncpg's connection
        """
        Check a new connection: the address may lead to another server meanwhile.

        Raises:
            PlaceError: It does, or the server went back in time.

        """
        await super().connected(connection)
        if self._place is not None:
            self._compare(self._place, await place_of(connection, "entries"))

    def _is_elsewhere(self, entries: str) -> bool:
        return self._place is not None and self._place.get("entries", entries) != entries

    @property
    def _title(self) -> str:
        """What errors call it."""
        return f"journal {self.settings.batch}"

    async def _checked_place(self, connection: Any) -> dict[str, str]:
        place = await place_of(connection, "entries")
        found = {name: await connection.fetchval(_FACT, f"place {name}") for name in place}
        before = {name: value for name, value in found.items() if value is not None}
        if not (self._restored or self._moved):
            self._compare(before, place)
        for name, value in place.items():
            await connection.execute(_SET, f"place {name}", value)
        if self._restored:
            through, latest = await self._last_of_copy(connection), await connection.fetchval(LATEST)
            text = mark(await connection.fetchval(_FACT, FACT), through, latest)
            await connection.execute(_SET, FACT, text)
        return place

    async def _last_of_copy(self, connection: Any) -> int:
        """Return the number of the last entry that may be of the copy."""
        return int(await connection.fetchval(THROUGH))

    def _compare(self, before: dict[str, str], place: dict[str, str]) -> None:
        what = wrong_with_place(before, place)
        if what is not None:
            raise PlaceError(
                f"{self._title}: {what}. Its last sends may be missing, so nothing was "
                f"sent. If nothing is missing (a clean switch-over), run {self.it} with --moved "
                "(moved=True). Otherwise run it with --restored (restored=True), which settles what may "
                "have been sent before it sends."
            )
