"""
In which schema of a PostgreSQL database a store is, and the statements that create or upgrade it there.

A batch is known by its name.  Of a journal or outbox, each base URL has a store of its own; of an outbox,
each credential, too.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from random import randrange
from typing import TYPE_CHECKING

from invsvc_async.durable.store.statements import store_sql
from invsvc_async.durable.store.tables import Opening, create, is_old, upgrade
from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.storage.dialect import PostgresDialect, Script
from invsvc_async.storage.postgres_pool import DURABLY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async.storage.dialect import Connection
    from invsvc_async.transport.client_core import ClientCore


# In the name of a schema, in place of the digest of a base URL and a credential.
_OF_NOBODY = 12 * "0"
_PARTS = 64  # of the counts


class StoreSchemas:
    """
    The schemas of the stores with the name *called*, of one kind, opened as *how* says.

    *where* names the database in errors; the store is created if *creates*.
    """

    def __init__(
        self,
        how: Opening,
        called: str,
        where: str,
        *,
        creates: bool,
    ) -> None:
        self._how = how
        self.called: str = called
        self.prefix: str = f"invoicing_{how.kind}_{called}"  # of their names
        self._where = where
        self._creates = creates

    def choose(
        self,
        base_url: str,
        mine: str,
        *,
        same_mode: bool,
    ) -> Script[str]:
        """
        Return the schema of *base_url* and a credential, which may have to be created.

        *mine* is the fingerprint of that credential, here and below; ``""`` where there is one for all.

        First one that is there (``_known``); then one that was created for the first client that opens it
        (``_adopt``); then the one that is named after both, if that may be created.
        """
        found = yield from self._known(base_url, mine, same_mode=same_mode)
        if found is None:
            found = yield from self._adopt(base_url)
        if found is None:
            yield from self._check_may_create()
        return found or self._schema_of(base_url, mine)

    def find(
        self,
        base_url: str,
        mine: str,
        *,
        same_mode: bool,
    ) -> Script[str | None]:
        """
        Return the schema of *base_url* and the credential *mine*; ``None`` if there is none, but one may be
        created.

        Enqueuing asks so, which creates nothing (``outbox/postgres``).

        With *same_mode*, the schema of another credential is returned if there is only one.

        Raises:
            JournalError: There is no such schema, and none is to be created; or *same_mode* leaves a choice
                of several.
        """
        found = yield from self._known(base_url, mine, same_mode=same_mode)
        if found is None:
            yield from self._check_may_create()
        return found

    async def only_one(self, connection: Connection) -> str:
        """Return the only schema of this name; raise JournalError if there are several, or none."""
        rows = await connection.fetch(store_sql.SCHEMAS_CALLED, f"{self.prefix}_")
        found = [str(row[0]) for row in rows if self._is_called_so(row[0])]
        if len(found) == 1:
            return found[0]
        if not found:
            raise self.none_here()
        raise JournalError(
            f"{self._where}: {len(found)} base URLs have a {self._how.kind} {self.called!r} there. Set "
            "INVSVC_BASE_URL, or give --profile."
        )

    def upgrade_of(self, core: ClientCore | None, found: int) -> Iterator[str]:
        """Yield the statements that bring tables of the version *found*, those of *core*, up to date."""
        if not is_old(self._how, found):
            raise ConfigurationError(
                f"{self._how.kind}: tables of version {found} need no statements. Give the version that the "
                "error names."
            )
        dialect = dialect_in(self.of_client(core), self._how)
        for text, values in upgrade(self._how, found):
            if "{sqlite}" not in text:
                yield str(dialect.translated(text, values)[0])

    def of_client(self, core: ClientCore | None) -> str:
        """Return the schema of *core*; without, the one that belongs to the first client that opens it."""
        if core is None:
            return self._of_nobody
        mine = core.credential.fingerprint(core.base_url) or ""
        return self._schema_of(core.base_url, mine)

    def none_here(self, whose: str = "") -> JournalError:
        """Return the error for a database without such a store; *whose* ends its first sentence."""
        return JournalError(
            f"{self._where}: it has no {self._how.kind} {self.called!r}{whose}. Check the name in its "
            "address, and the profile."
        )

    def _schema_of(self, base_url: str, mine: str) -> str:
        digest = blake2b(f"{base_url} {mine}".encode(), digest_size=6).hexdigest()
        return f"{self.prefix}_{digest}"

    @property
    def _of_nobody(self) -> str:
        """The schema that belongs to the first client that opens it."""
        return f"{self.prefix}_{_OF_NOBODY}"

    def _adopt(self, base_url: str) -> Script[str | None]:
        """
        Return the schema that was created without an owner, and note *base_url* as the owner.

        ``None`` if there is no such schema, or somebody has it.  The caller holds the lock of this name.
        """
        schema = self._of_nobody
        may_adopt = self._how.is_of_credential and self._creates
        if not may_adopt:
            return None
        if not (yield store_sql.HAS_TABLE, (f"{schema}.facts",))[0][0]:
            return None
        taken = yield store_sql.ADOPT_SCHEMA.format(schema=schema), (base_url,)
        return schema if taken else None

    def definition(self, core: ClientCore | None) -> Iterator[str]:
        """
        Yield the statements that create the store of *core*; the first statement creates the schema.

        Without *core*, the store belongs to the first client that opens it.
        """
        facts = {} if core is None else {"base_url": core.base_url}
        schema = self.of_client(core)
        dialect = dialect_in(schema, self._how)
        yield f"CREATE SCHEMA {schema}"
        for text, values in create(self._how, **facts):
            if "{sqlite}" not in text:
                # What is printed has no parameters: each array of texts becomes a literal.
                statement, *arrays = dialect.translated(text, values)
                for number, array in enumerate(arrays, 1):
                    texts = ("'{}'".format(each.replace("'", "''")) for each in array)
                    statement = statement.replace(
                        f"${number}::", f"ARRAY[{', '.join(texts)}]::"
                    )
                yield statement

    def _known(
        self,
        base_url: str,
        mine: str,
        *,
        same_mode: bool,
    ) -> Script[str | None]:
        """Return the schema of *base_url* and *mine* as ``find`` does, among those that the role may read."""
        own = self._schema_of(base_url, mine)
        if (yield store_sql.HAS_TABLE, (f"{own}.facts",))[0][0]:
            return own
        others: list[str] = []
        for schema in (yield from self._called_so(is_hidden=False)):
            facts = dict(
                map(tuple, (yield store_sql.OWNERS_OF_SCHEMA.format(schema=schema), ()))
            )
            if facts.get("base_url") == base_url:
                if f"credential {mine}" in facts:
                    return schema
                others.append(schema)
        if same_mode and len(others) > 1:
            text = store_sql.CONTINUE_BY_HAND.format(mine=mine)
            raise JournalError(
                f"{self._where}: several credentials have an {self._how.kind} here, perhaps of other teams, "
                "and same_mode does not say which one is continued. Find its schema among "
                f"{', '.join(others)}, and run: {text}"
            )
        if same_mode and others:
            return others[0]
        return None

    def _check_may_create(self) -> Script[None]:
        """
        Raise JournalError unless a schema may be created.

        The role may not read one of this name, which may be the one to use; or none is to be created.
        """
        for schema in (yield from self._called_so(is_hidden=True)):
            # The database refuses this, in its own words.
            yield store_sql.OWNERS_OF_SCHEMA.format(schema=schema), ()
        if not self._creates:
            raise self.none_here(" of this base URL and credential")

    def _called_so(self, *, is_hidden: bool) -> Script[list[str]]:
        """Return the schemas of this name, of any base URL, that the role may read; or the hidden ones."""
        rows = yield store_sql.SCHEMAS_CALLED, (f"{self.prefix}_",)
        return [
            schema
            for schema, hidden in rows
            if hidden is is_hidden and self._is_called_so(schema)
        ]

    def _is_called_so(self, schema: str) -> bool:
        """Return whether *schema* has this name, and not one that only begins like it."""
        return bool(
            re.fullmatch("[0-9a-f]{12}", schema.removeprefix(f"{self.prefix}_"))
        )


def dialect_in(schema: str, how: Opening) -> PostgresDialect:
    """Return the dialect of the statements of a store in *schema*."""
    kinds = ["counted"] if how.counted else []
    # The application gets the verdicts of a client's journal by their keys.  Its ``unheard`` only notes who
    # returns secrets, and is not changed here: these puts have no taker.
    told = "AND taker IS NOT NULL" if how.kind == "journal" else ""
    return PostgresDialect(
        *kinds,
        s=f"{schema}.",
        told=told,
        part=str(randrange(_PARTS)),
        serial="bigserial PRIMARY KEY",
        filled="WITH (fillfactor = 40)",
        small="",
        ms="floor(extract(epoch FROM clock_timestamp()) * 1000)",
        durably=DURABLY,
        at="strpos",
        now="extract(epoch FROM clock_timestamp())::float8",
    )
