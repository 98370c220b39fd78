"""
How a journal in PostgreSQL that went back in time, or was copied, is recognised: by the place of its tables.

The place consists of the cluster's system identifier, the timeline of its log, and the identity of a table.
Recovery from a backup and the promotion of a replica begin a new timeline; a dump makes a new table. A
snapshot of the storage that is put back as it was cannot be recognised.
"""

from __future__ import annotations

from typing import Any, ClassVar

from invsvc_async.batch.journals.postgres import PostgresBatch
from invsvc_async.batch.restored import FACT, LATEST, THROUGH, mark
from invsvc_async.errors import JournalError

__all__ = ["PlaceError", "PlacedBatch", "place_of"]

_PLACE = """
SELECT CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END AS timeline,
    to_regclass('entries')::oid::text AS entries
"""
_SYSTEM = "SELECT system_identifier::text FROM pg_control_system()"
_SET = "INSERT INTO facts VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
_FACT = "SELECT value FROM facts WHERE name = $1 FOR UPDATE"
_WHAT = {
    "system": "the database is another server's than before: the journal was copied, or restored from a dump",
    "timeline": "the server was restored from a backup, or a replica was promoted, since the last use",
    "entries": "the tables were made anew: the journal was copied, or restored from a dump",
}


class PlaceError(JournalError):
    """The journal may lack sends, because it is in another place than before."""


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
            self._compare(self._place, await place_of(connection))

    def _is_elsewhere(self, entries: str) -> bool:
        return self._place is not None and self._place.get("entries", entries) != entries

    @property
    def _title(self) -> str:
        """What errors call it."""
        return f"journal {self.settings.batch}"

    async def _checked_place(self, connection: Any) -> dict[str, str]:
        place = await place_of(connection)
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
        for name, what in _WHAT.items():
            if name in before and name in place and before[name] != place[name]:
                raise PlaceError(
                    f"{self._title}: {what}. Its last sends may be missing, so nothing was "
                    f"sent. If nothing is missing (a clean switch-over), run {self.it} with --moved "
                    "(moved=True). Otherwise run it with --restored (restored=True), which settles what may "
                    "have been sent before it sends."
                )


async def place_of(connection: Any) -> dict[str, str]:
    """
    Return the place.

    Raises:
        ConnectionError: The server is a standby, or still recovers, so its timeline is not decided.

    """
    place = dict(await connection.fetchrow(_PLACE))
    if place["timeline"] is None:
        raise ConnectionError("it is a standby, or still recovers")
    may_ask = await connection.fetchval("SELECT has_function_privilege('pg_control_system()', 'EXECUTE')")
    if may_ask:
        place["system"] = await connection.fetchval(_SYSTEM)
    return {
        name: value for name, value in place.items() if value is not None
    }  # without a table: statements fail
