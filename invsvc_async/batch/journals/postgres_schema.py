"""The PostgreSQL schema of a batch's journal, and the address that names it."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlunsplit

import attrs

from invsvc_async.batch.journals.postgres_migrations import FIRST, LATEST, migrate
from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.storage.address import split
from invsvc_async.storage.postgres_pool import Pool

__all__ = ["Database", "Settings"]

_EXISTS = """
SELECT 1 FROM pg_class WHERE relname = 'facts' AND relnamespace = to_regnamespace($1)
"""
_MAY_CREATE = """
SELECT quote_ident(current_user) AS role, quote_ident(current_database()) AS database,
    to_regnamespace($1) IS NOT NULL AS exists, coalesce(
        has_schema_privilege(to_regnamespace($1), 'CREATE'),
        has_database_privilege(current_database(), 'CREATE')
    ) AS may
"""
_READS, _WORKS = ["SELECT"], ["SELECT", "INSERT", "UPDATE", "DELETE"]
# Without a right to the schema, nothing else can be asked.
_MISSING = """
SELECT quote_ident(current_user) AS role, 'USAGE' AS right, nspname::text AS relname
FROM pg_namespace WHERE nspname = $1::text AND NOT has_schema_privilege(oid, 'USAGE')
UNION ALL SELECT quote_ident(current_user), wanted, relname::text
FROM pg_class, unnest($2::text[]) AS wanted
WHERE relnamespace = to_regnamespace($1) AND relkind = 'r' AND NOT has_table_privilege(oid, wanted)
UNION ALL SELECT quote_ident(current_user), 'USAGE', relname::text
FROM pg_class WHERE relnamespace = to_regnamespace($1) AND 'INSERT' = ANY ($2)
    AND CASE WHEN relkind = 'S' THEN NOT has_sequence_privilege(oid, 'USAGE') END
"""
_OWNER = """
SELECT quote_ident(current_user) AS role, relowner::regrole AS owner, pg_has_role(relowner, 'USAGE') AS mine
FROM pg_class WHERE oid = to_regclass('entries')
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
        if not await connection.fetchval(_EXISTS, schema):
            if not self._create:
                raise JournalError(
                    f"there is no batch {self.settings.batch!r} in the journal's database. "
                    "Check the name in its address."
                )
            if not await self._may_create(connection):
                await connection.execute(f"CREATE SCHEMA {schema}")
            await connection.execute(FIRST)
            from pgqueuer.db import AsyncpgDriver
            from pgqueuer.queries import Queries

            await Queries(AsyncpgDriver(connection)).install(create_schema=False)
        await self._check_rights(connection)
        version = await connection.fetchval("SELECT value FROM facts WHERE name = 'schema'")
        if not re.fullmatch("[0-9]{1,9}", version or "") or not 1 <= int(version) <= LATEST:
            raise JournalError(
                f"journal {schema}: it has version {version}, and this package reads versions 1 to {LATEST}. "
                "Use the version of the package that last opened it, or a newer one."
            )
        self._version = int(version)
        await self._check_owner(connection)

    async def _check_place(self, connection: Any) -> None:  # Any: asyncpg has no types
        """Refuse a database that is read-only."""
        if self._create and await connection.fetchval("SHOW transaction_read_only") == "on":
            raise JournalError(
                f"journal {self.schema}: the database is read-only, perhaps a standby. Nothing was stored. "
                "Use the primary's address."
            )

    async def _may_create(self, connection: Any) -> bool:  # Any: asyncpg has no types
        """Refuse a role that may not create the journal; return whether its schema exists, without tables."""
        row = await connection.fetchrow(_MAY_CREATE, self.schema)
        if row["may"]:
            return bool(row["exists"])
        place = f"SCHEMA {self.schema}" if row["exists"] else f"DATABASE {row['database']}"
        raise JournalError(
            f"journal {self.schema}: it does not exist, and the role {row['role']} may not create it. "
            f"Let an owner run: GRANT CREATE ON {place} TO {row['role']}; or let another role create it."
        )

    async def _check_rights(self, connection: Any) -> None:  # Any: asyncpg has no types
        """Refuse a role that cannot do what a worker does, before anything is sent."""
        rows = await connection.fetch(_MISSING, self.schema, _WORKS if self._create else _READS)
        if rows:
            some = ", ".join(f"{row['right']} on {row['relname']}" for row in rows[:3])
            raise JournalError(
                f"journal {self.schema}: the role {rows[0]['role']} lacks {some}"
                f"{' and more' if len(rows) > 3 else ''}. Let the owner run: "
                f"{_grants(self.schema, rows[0]['role'], reading=not self._create)}"
            )

    async def _check_owner(self, connection: Any) -> None:  # Any: asyncpg has no types
        """Refuse a role that cannot bring older tables to the latest version."""
        if self._create and self._version < LATEST:
            row = await connection.fetchrow(_OWNER)
            if not row["mine"]:
                raise JournalError(
                    f"journal {self.schema}: it has version {self._version}, this package needs {LATEST}, "
                    f"and the role {row['role']} does not own its tables. Let {row['owner']} open it once "
                    "with this package."
                )


def _grants(schema: str, role: str, *, reading: bool) -> str:
    """Return the statements after which *role* can use the journal."""
    usage = f"GRANT USAGE ON SCHEMA {schema} TO {role};"
    if reading:
        return f"{usage} GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role};"
    return (
        f"{usage} GRANT {', '.join(_WORKS)} ON ALL TABLES IN SCHEMA {schema} TO {role}; "
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role};"
    )
