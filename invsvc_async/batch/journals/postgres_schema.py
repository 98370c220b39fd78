"""The PostgreSQL schema of a batch's journal, and the address that names it."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import attrs

from invsvc_async._errors import ConfigurationError, JournalError
from invsvc_async.storage.postgres_pool import Pool

__all__ = ["Database", "Settings"]

SCHEMA = 1
# The columns written at every send (state, common, intent) are in no index and no index condition, so such an
# update writes no index.
_TABLES = """
CREATE TABLE facts (name text PRIMARY KEY, value text NOT NULL);
CREATE TABLE commons (number bigint PRIMARY KEY, text text NOT NULL);
CREATE TABLE chunks (id bigserial PRIMARY KEY, owner text, done boolean NOT NULL DEFAULT false);
CREATE TABLE entries (
    seq bigserial PRIMARY KEY, key text NOT NULL UNIQUE, chunk bigint NOT NULL, thing text, content bytea
    NOT NULL, state smallint NOT NULL, run integer NOT NULL, operation text NOT NULL, verdict text, common
    bigint, intent text, outcome text, claim text, done_at bigint
) WITH (fillfactor = 70);
CREATE INDEX not_done ON entries (chunk, seq) WHERE done_at IS NULL;
CREATE INDEX things ON entries (thing) WHERE done_at IS NULL AND thing IS NOT NULL;
CREATE INDEX not_applied ON entries (verdict, seq) WHERE verdict <> 'applied';
CREATE INDEX claimed ON entries (seq) WHERE claim IS NOT NULL;
CREATE INDEX open_chunks ON chunks (id) WHERE NOT done;
"""
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
        super().__init__(self.settings.address, "the journal's database")
        self._create = create

    async def open(self) -> None:
        """
        Connect, and create the tables if they do not exist.

        Raises:
            JournalError: The database cannot be used, or the journal is of a newer version, or it does not
                exist and *create* is false.

        """
        await self.connect(self._make, search_path=self._schema, application_name="invsvc batch")

    @property
    def _schema(self) -> str:
        return f"invsvc_{self.settings.batch}"

    async def _make(self, connection: Any) -> None:  # Any: asyncpg has no types
        schema = self._schema
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", schema)
        if not await connection.fetchval("SELECT to_regclass($1)", f"{schema}.facts"):
            if not self._create:
                raise JournalError(
                    f"there is no batch {self.settings.batch!r} in the journal's database. "
                    "Check the name in its address."
                )
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            await connection.execute(_TABLES)
            await connection.execute("INSERT INTO facts VALUES ('schema', $1)", str(SCHEMA))
            from pgqueuer.db import AsyncpgDriver
            from pgqueuer.queries import Queries

            await Queries(AsyncpgDriver(connection)).install(create_schema=False)
        version = await connection.fetchval("SELECT value FROM facts WHERE name = 'schema'")
        if version != str(SCHEMA):
            raise JournalError(
                f"journal {schema}: it has version {version}, and this package reads version {SCHEMA}. "
                "Use the version of the package that created it, or a newer one."
            )
