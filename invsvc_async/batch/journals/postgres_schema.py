"""The PostgreSQL schema of a batch's journal, and the address that names it."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import attrs

from invsvc_async._errors import ConfigurationError, JournalError
from invsvc_async.batch.journals.postgres_migrations import FIRST, LATEST, migrate
from invsvc_async.storage.postgres_pool import Pool

__all__ = ["Database", "Settings"]

_LONGEST = 86_400  # s of silence


@attrs.frozen(kw_only=True)
class Settings:
    """
    The settings in an address, besides PostgreSQL's own: ``?batch=NAME&slots=8&silence=10``.

    ``slots`` is how many chunks all machines work on at once (0: any number); ``silence`` is after how many
    seconds a worker counts as dead.
    """

    address: str
    batch: str = "default"
    slots: int = 0
    silence: float = 10.0

    @classmethod
    def of(cls, address: str) -> Settings:
        """
        Parse the address.

        Raises:
            ConfigurationError: A setting is invalid.

        """
        parts = urlsplit(address)
        query = dict(parse_qsl(parts.query))
        own = {name: query.pop(name) for name in ("batch", "slots", "silence") if name in query}
        try:
            settings = cls(
                address=urlunsplit(parts._replace(query=urlencode(query))),
                batch=own.get("batch", "default"),
                slots=int(own.get("slots", 0)),
                silence=float(own.get("silence", 10.0)),
            )
        except ValueError as error:
            raise ConfigurationError(f"the journal's address: {error}. Use numbers.") from None
        if not re.fullmatch(r"[a-z0-9_]{1,40}", settings.batch):
            raise ConfigurationError(
                "the journal's address: batch is invalid. Use 1 to 40 characters of a-z, 0-9 and _."
            )
        if settings.slots < 0:
            raise ConfigurationError("the journal's address: slots is negative. Use 0 or more.")
        if not 1 <= settings.silence <= _LONGEST:  # nor NaN
            raise ConfigurationError(
                f"the journal's address: silence is out of range. Use 1 to {_LONGEST} seconds."
            )
        return settings


class Database(Pool):
    """One schema of one database, with the tables of a journal."""

    def __init__(self, address: str, *, create: bool = True) -> None:
        self.settings: Settings = Settings.of(address)
        super().__init__(self.settings.address, "the journal's database", size=6)  # one of them listens
        self._create = create
        self._version = 0

    async def open(self) -> None:
        """
        Connect, create the tables if they do not exist, and bring older ones to the latest version.

        Raises:
            JournalError: The database cannot be used, or the journal is of a newer version, or it does not
                exist and *create* is false.

        """
        await self.connect(self._make, search_path=self.schema, application_name="invsvc batch")
        if self._create:
            try:
                await self.migrate()
            except BaseException:
                await self.aclose()
                raise

    async def migrate(self) -> None:
        """
        Bring the tables to the latest version, if they have an older one.

        Raises:
            JournalError: The database stayed away, or refused a statement.

        """
        if self._version < LATEST:
            await migrate(self, self.schema)
            self._version = LATEST

    @property
    def schema(self) -> str:
        """The name of the schema, which is also that of the channel for signals."""
        return f"invsvc_{self.settings.batch}"

    async def _make(self, connection: Any) -> None:  # Any: asyncpg has no types
        schema = self.schema
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", schema)
        if not await connection.fetchval("SELECT to_regclass($1)", f"{schema}.facts"):
            if not self._create:
                raise JournalError(
                    f"there is no batch {self.settings.batch!r} in the journal's database. "
                    "Check the name in its address."
                )
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            await connection.execute(FIRST)
            from pgqueuer.db import AsyncpgDriver
            from pgqueuer.queries import Queries

            await Queries(AsyncpgDriver(connection)).install(create_schema=False)
        version = await connection.fetchval("SELECT value FROM facts WHERE name = 'schema'")
        if not re.fullmatch("[0-9]{1,9}", version or "") or not 1 <= int(version) <= LATEST:
            raise JournalError(
                f"journal {schema}: it has version {version}, and this package reads versions 1 to {LATEST}. "
                "Use the version of the package that last opened it, or a newer one."
            )
        self._version = int(version)
