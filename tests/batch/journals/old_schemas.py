"""The schemas of PostgreSQL journals, as earlier versions of the package made them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from tests.support.database import database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BEFORE_STATES = """
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
CREATE INDEX open_chunks ON chunks (id) WHERE NOT done;
INSERT INTO facts VALUES ('schema', '1');
"""
WITH_STATES = f"""{BEFORE_STATES}
CREATE TABLE states (thing text PRIMARY KEY, seq bigint NOT NULL, team text, state text, stamp bigint);
CREATE INDEX unknown_things ON entries (thing) WHERE verdict = 'unknown' AND thing IS NOT NULL;
CREATE INDEX claimed_things ON entries (thing) WHERE claim IS NOT NULL;
"""
WITH_CLAIMED = f"{WITH_STATES} CREATE INDEX claimed ON entries (seq) WHERE claim IS NOT NULL;"
OLD = {"before states": BEFORE_STATES, "with states": WITH_STATES, "with claimed": WITH_CLAIMED}

# Until version 6, what a change adds to the counts was planned anew each time.
COUNTED_ANEW = """
CREATE OR REPLACE FUNCTION count_entries() RETURNS trigger LANGUAGE plpgsql AS $body$
DECLARE
    given text := CASE TG_OP WHEN 'INSERT' THEN 'SELECT *, 1 AS one FROM fresh'
        WHEN 'DELETE' THEN 'SELECT *, -1 AS one FROM gone'
        ELSE 'SELECT *, 1 AS one FROM fresh UNION ALL SELECT *, -1 FROM gone' END;
BEGIN
    EXECUTE format($text$
        INSERT INTO %I.counts (state, verdict, lost, overtaken, many)
        SELECT state, verdict, coalesce(outcome LIKE '%%"lost":true%%', false) AS lost,
            coalesce(outcome LIKE '%%"overtaken":true%%', false) AS overtaken, sum(one)
        FROM (%s) AS given GROUP BY 1, 2, 3, 4 HAVING sum(one) <> 0
    $text$, TG_TABLE_SCHEMA, given);
    RETURN NULL;
END $body$;
UPDATE facts SET value = '6' WHERE name = 'schema';
"""


@asynccontextmanager
async def old_schema(
    name: str, tables: str, *, address: str | None = None
) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Create the schema *name* with *tables*, and yield a connection that uses it."""
    connection = await asyncpg.connect(address or database().address, server_settings={"search_path": name})
    try:
        await connection.execute(f"CREATE SCHEMA {name}")
        await connection.execute(tables)
        await Queries(AsyncpgDriver(connection)).install(create_schema=False)
        yield connection
    finally:
        await connection.close()
