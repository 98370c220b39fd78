"""
The schemas of outboxes and shared journals in PostgreSQL: the entries of a batch, and their processes.

Each application (base URL and credential) has a schema of its own, so that none sees the writes of another.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlunsplit

from invsvc_async.batch.journals.chunk_fencing import worker_of
from invsvc_async.batch.journals.postgres_epoch import PlacedBatch
from invsvc_async.batch.journals.postgres_schema import ENTRIES
from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.storage.address import split
from invsvc_async.storage.postgres_pool import Pool

if TYPE_CHECKING:
    from collections.abc import Iterable

    from invsvc_async.transport.session import ClientState

__all__ = ["DEAD", "SharedEntries", "living"]

# A place is one application's part: its schema has the number of the place in its name.
_PLACES = """
CREATE TABLE IF NOT EXISTS {registry}.places (
    base_url text NOT NULL, credential text NOT NULL, place bigint NOT NULL,
    PRIMARY KEY (base_url, credential)
);
CREATE SEQUENCE IF NOT EXISTS {registry}.place_numbers
"""
# ``taker`` has a verdict that it has not acknowledged yet; ``heard`` is whether somebody has acknowledged it.
_MORE = """
CREATE TABLE members (name text PRIMARY KEY, seen timestamptz NOT NULL);
ALTER TABLE entries ADD COLUMN heard boolean NOT NULL DEFAULT false, ADD COLUMN taker text;
CREATE INDEX unheard ON entries (seq) WHERE done_at IS NOT NULL AND NOT heard;
"""
_BEAT = """
INSERT INTO members VALUES ($1, clock_timestamp()) ON CONFLICT (name) DO UPDATE SET seen = clock_timestamp()
"""

# A process has the time in its name for which others count it as living, in ms: theirs may be shorter.
_SEEN = """
seen > clock_timestamp()
    - make_interval(secs => greatest($1, coalesce(substring(name FROM '~([0-9]+)$')::float8 / 1000, 0)))
"""
# Whether the process of a token in the column *owner* is silent for longer than $1 seconds.
DEAD = f"NOT EXISTS (SELECT 1 FROM members WHERE name = split_part({{owner}}, '.', 1) AND {_SEEN})"  # noqa: S608 - our own text
_LIVING = f"SELECT name FROM members WHERE name = ANY ($2) AND {_SEEN}"  # noqa: S608 - our own text


class SharedEntries(PlacedBatch):
    """
    The entries of one application, in the database at *address*.

    *kind* is ``"outbox"`` or ``"journal"``, and also the setting in the address that names one of several:
    ``postgresql://host/db?outbox=NAME``.
    """

    _apart = True  # whether each credential has a place of its own

    def __init__(self, address: str, kind: str, *, create: bool = True) -> None:
        parts = split(address, f"the {kind}'s address")
        query = dict(parse_qsl(parts.query))
        if "batch" in query:
            raise ConfigurationError(f"the {kind}'s address: has a batch. Name it with {kind}=… instead.")
        self._called = query.pop(kind, "default")
        if not re.fullmatch(r"[a-z0-9_]{1,30}", self._called):
            raise ConfigurationError(
                f"the {kind}'s address: {kind} is invalid. Use 1 to 30 characters of a-z, 0-9 and _."
            )
        super().__init__(urlunsplit(parts._replace(query=urlencode(query))), create=create, reading=True)
        self._name = f"the {kind}'s database"
        self._kind = kind
        self._number = 0

    @property
    def _title(self) -> str:
        return f"{self._kind} {self._called}"

    @property
    def silence(self) -> float:
        """After how many seconds without a sign of life a process counts as dead."""
        return self.settings.silence

    @property
    def _registry(self) -> str:
        return f"invoicing_{self._kind}_{self._called}"  # no batch's name begins so

    @property
    def schema(self) -> str:
        """The name of the schema, once it is open."""
        return f"{self._registry}_{self._number}"

    async def open_for(self, session: ClientState, *, same_mode: bool) -> None:
        """
        Connect, and create what is missing. *same_mode* continues what an older credential has left.

        Raises:
            JournalError: The database cannot be used, or its schema is of another version.

        """
        mine = (session.credential.fingerprint(session.base_url) or "") if self._apart else ""

        async def find(connection: Any) -> None:  # Any: asyncpg's
            self._number = await self._find(connection, session.base_url, mine, same_mode=same_mode)

        registry = Pool(self.settings.address, self._name, size=1, patience=self.patience)
        await registry.connect(find, application_name="invsvc outbox")
        await registry.aclose()
        await self.open()

    async def connected(self, connection: Any) -> None:  # Any: as above
        """Check a new connection. Once it ends, the next one may find an older copy of the database."""
        connection.add_termination_listener(lambda _: self._stored_commons.clear())
        await super().connected(connection)

    async def _find(
        self, connection: Any, base_url: str, mine: str, *, same_mode: bool
    ) -> int:  # Any: as above
        registry = self._registry
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", registry)
        if not await connection.fetchval("SELECT to_regclass($1)", f"{registry}.place_numbers"):
            if not self._create:
                raise JournalError(
                    f"{self._name}: it has no {self._kind} {self._called!r}. Check the name in its address."
                )
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {registry}")
            await connection.execute(_PLACES.format(registry=registry))
        text = f"SELECT credential, place FROM {registry}.places WHERE base_url = $1"  # noqa: S608 - our own text
        places = {row["credential"]: int(row["place"]) for row in await connection.fetch(text, base_url)}
        if mine in places:
            return places[mine]
        if not self._create and not (same_mode and places):
            raise JournalError(
                f"{self._name}: it has no {self._kind} of this base URL and credential. Check the profile."
            )
        if same_mode and len({*places.values()}) > 1:
            row = f"INTO {registry}.places VALUES ('{base_url}', '{mine}', N)"
            raise JournalError(
                f"{self._name}: several credentials have an {self._kind} here, perhaps of other teams, and "
                "same_mode does not say which one is continued. Find its schema, which is "
                f"{registry}_N, and run: INSERT {row}"
            )
        if same_mode and places:
            [found] = {*places.values()}
        else:
            found = int(await connection.fetchval(f"SELECT nextval('{registry}.place_numbers')"))
        text = f"INSERT INTO {registry}.places VALUES ($1, $2, $3)"  # noqa: S608 - our own text
        await connection.execute(text, base_url, mine, found)
        return found

    async def _fill(self, connection: Any) -> None:  # Any: as above
        await connection.execute(ENTRIES + _MORE)

    async def show_life(self, name: str) -> None:
        """Note that the member *name* lives."""
        await self.fetch(_BEAT, name)

    async def leave(self, name: str) -> None:
        """Delete the member *name*: it counts as dead at once."""
        await self.fetch("DELETE FROM members WHERE name = $1", name)


async def living(connection: Any, silence: float, tokens: Iterable[str | None]) -> set[str]:  # Any: asyncpg's
    """
    Return the processes of *tokens* that are not silent.

    Call it after the rows with these tokens are locked: a process may have shown meanwhile that it lives.
    """
    names = {worker_of(token) for token in tokens if token is not None}
    found = await connection.fetch(_LIVING, silence, sorted(names)) if names else []
    return {row["name"] for row in found}
