"""The PostgreSQL schema of a batch's journal, and the address that names it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlunsplit

import attrs

from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.storage import postgres_pool
from invsvc_async.storage.address import split
from invsvc_async.storage.postgres_pool import Pool
from invsvc_async.storage.table_version import VERSION, check_version

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ENTRIES", "IN_TURN", "Database", "Settings"]

# The columns written at every send (state, common, intent) are in no index and no index condition, and the
# fill factor leaves room on the row's page for its second version, so such an update writes no index (HOT).
ENTRIES = f"""
CREATE TABLE facts (name text PRIMARY KEY, value text NOT NULL);
CREATE TABLE commons (number bigint PRIMARY KEY, text text NOT NULL);
CREATE TABLE chunks (id bigserial PRIMARY KEY, owner text, done boolean NOT NULL DEFAULT false);
CREATE TABLE entries (
    seq bigserial PRIMARY KEY, key text NOT NULL UNIQUE, chunk bigint NOT NULL, thing text, content bytea
    NOT NULL, state smallint NOT NULL, run integer NOT NULL, operation text NOT NULL, verdict text, common
    bigint, intent text, outcome text, claim text, done_at bigint, position bigint, giver integer
) WITH (fillfactor = 40);
CREATE SEQUENCE positions;
CREATE TABLE states (thing text PRIMARY KEY, seq bigint NOT NULL, team text, state text, stamp bigint);
CREATE INDEX not_done ON entries (chunk, seq) WHERE done_at IS NULL;
CREATE INDEX things ON entries (thing) WHERE done_at IS NULL AND thing IS NOT NULL;
CREATE INDEX not_applied ON entries (verdict, seq) WHERE verdict <> 'applied';
CREATE INDEX unknown_things ON entries (thing) WHERE verdict = '{Verdict.UNKNOWN}' AND thing IS NOT NULL;
CREATE INDEX claimed_things ON entries (thing) WHERE claim IS NOT NULL;
CREATE INDEX claimed ON entries (seq) WHERE claim IS NOT NULL;
CREATE INDEX open_chunks ON chunks (id) WHERE NOT done;
INSERT INTO facts VALUES ('schema', '{VERSION}');
"""  # noqa: S608 - our own text
# One transaction at a time, so that each sees the chunks to which the previous one assigned its things.
IN_TURN = "SELECT pg_advisory_xact_lock(hashtext(current_schema()))"
_COUNTED = """state, verdict, coalesce(strpos(outcome, '"lost":true') > 0, false) AS lost,
    coalesce(strpos(outcome, '"overtaken":true') > 0, false) AS overtaken"""


def _appending(to: str, given: Mapping[str, int]) -> str:
    """Return what appends to the table *to* how often each count is in the tables *given*, by their signs."""
    parts = (f"SELECT {_COUNTED}, {sign} AS one FROM {table}" for table, sign in given.items())  # noqa: S608 - our own text
    return f"""
        INSERT INTO {to} (state, verdict, lost, overtaken, many)
        SELECT state, verdict, lost, overtaken, sum(one) FROM ({" UNION ALL ".join(parts)}) AS given
        GROUP BY 1, 2, 3, 4 HAVING sum(one) <> 0
    """  # noqa: S608 - our own text


_GIVEN = {"INSERT": {"fresh": 1}, "UPDATE": {"fresh": 1, "gone": -1}, "DELETE": {"gone": -1}}
_KEPT = " ".join(f"WHEN '{op}' THEN {_appending('counts', given)};" for op, given in _GIVEN.items())
_ANEW = " ".join(f"WHEN '{op}' THEN $${_appending('%I.counts', given)}$$" for op, given in _GIVEN.items())
_COUNTING = "".join(
    f"""
    CREATE TRIGGER count_{event} AFTER {event} ON entries REFERENCING {tables}
        FOR EACH STATEMENT EXECUTE FUNCTION count_entries();
    """
    for event, tables in {
        "insert": "NEW TABLE AS fresh",
        "update": "OLD TABLE AS gone NEW TABLE AS fresh",
        "delete": "OLD TABLE AS gone",
    }.items()
)
# Each statement that changes entries appends what it adds to the counts, so no row is waited for.  To plan
# that takes longer than to run it.  Only sessions that surely find this journal's table may keep the plan, as
# those of workers do.
_OF_BATCH = f"""
CREATE INDEX given ON entries (giver, position) WHERE position IS NOT NULL;
CREATE TABLE counts (
    id bigserial PRIMARY KEY, state smallint NOT NULL, verdict text, lost boolean NOT NULL,
    overtaken boolean NOT NULL, many bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE FUNCTION count_entries() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    IF current_schemas(true) = ARRAY['pg_catalog', TG_TABLE_SCHEMA] THEN
        CASE TG_OP {_KEPT} END CASE;
    ELSE
        EXECUTE format(CASE TG_OP {_ANEW} END, TG_TABLE_SCHEMA);
    END IF;
    RETURN NULL;
END $body$;
{_COUNTING}
CREATE TABLE workers (
    name text PRIMARY KEY, host text NOT NULL, pid integer NOT NULL,
    begun timestamptz NOT NULL DEFAULT now(), seen timestamptz NOT NULL DEFAULT now(),
    done bigint NOT NULL, rate float8 NOT NULL, chunks integer NOT NULL,
    ended boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);
CREATE TABLE runs (
    run integer PRIMARY KEY, began timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen timestamptz NOT NULL DEFAULT clock_timestamp(), ended boolean NOT NULL DEFAULT false,
    taken bigint NOT NULL DEFAULT 0, given_by integer, has_open_input boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);
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
        parts = split(address, "the journal's address")
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
        if not create:  # it is looked at
            self.to_open: float = postgres_pool.AT_ONCE

    async def open(self) -> None:
        """
        Connect, and create the tables if they do not exist.

        Raises:
            JournalError: The database cannot be used, or the tables are of another version, or they do not
                exist and *create* is false.

        """
        await self.connect(self._make, search_path=self.schema, application_name="invsvc batch")

    @property
    def schema(self) -> str:
        """The name of the schema, which is also that of the channel for signals."""
        return f"invsvc_{self.settings.batch}"

    async def connected(self, connection: Any) -> None:  # Any: asyncpg has no types
        """Refuse a connection that looks for tables elsewhere: a pooler may give it another session."""
        await super().connected(connection)
        if await connection.fetchval("SHOW search_path") != self.schema:
            raise JournalError(
                f"journal {self.schema}: a pooler does not pass on search_path. Let it (PgBouncer: "
                "track_extra_parameters, from PostgreSQL 18), or connect without it."
            )

    async def _make(self, connection: Any) -> None:  # Any: asyncpg has no types
        schema = self.schema
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", schema)
        await self._check_place(connection)
        if not await connection.fetchval("SELECT to_regclass($1)", f"{schema}.facts"):
            if not self._create:
                raise JournalError(
                    f"there is no batch {self.settings.batch!r} in the journal's database. "
                    "Check the name in its address."
                )
            if not await connection.fetchval("SELECT to_regnamespace($1)", schema):
                await connection.execute(f"CREATE SCHEMA {schema}")
            await self._fill(connection)
        found = await connection.fetchval("SELECT value FROM facts WHERE name = 'schema'")
        check_version(f"journal {schema}", found)

    async def _fill(self, connection: Any) -> None:  # Any: asyncpg has no types
        """Create the tables."""
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        await connection.execute(ENTRIES + _OF_BATCH)
        await Queries(AsyncpgDriver(connection)).install(create_schema=False)

    async def _check_place(self, connection: Any) -> None:  # Any: asyncpg has no types
        """Refuse a database that is read-only."""
        if self._create and await connection.fetchval("SHOW transaction_read_only") == "on":
            raise JournalError(
                f"journal {self.schema}: the database is read-only, perhaps a standby. Nothing was stored. "
                "Use the primary's address."
            )
