"""
The versions of a journal's schema in PostgreSQL, and the steps from each to the next.

A journal is created in its first version, and all steps run, so that new and old journals have the same
tables.  One worker at a time runs them; others wait for it.  Workers that have the journal open go on, so no
step may hold a lock for long: changes of tables are short transactions, indexes are built concurrently, and
rows are changed in slices.  Everything in a step can be repeated, because it may be stopped anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.reconcile.enums import NO_EFFECT, Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from invsvc_async.storage.postgres_pool import Pool

__all__ = ["COUNTED", "COUNTS_KEPT_FROM", "FIRST", "IN_TURN", "LATEST", "WORKERS_KEPT_FROM", "migrate"]

# The columns written at every send (state, common, intent) are in no index and no index condition, and the
# fill factor leaves room on the row's page for its second version, so such an update writes no index (HOT).
FIRST = """
CREATE TABLE facts (name text PRIMARY KEY, value text NOT NULL);
CREATE TABLE commons (number bigint PRIMARY KEY, text text NOT NULL);
CREATE TABLE chunks (id bigserial PRIMARY KEY, owner text, done boolean NOT NULL DEFAULT false);
CREATE TABLE entries (
    seq bigserial PRIMARY KEY, key text NOT NULL UNIQUE, chunk bigint NOT NULL, thing text, content bytea
    NOT NULL, state smallint NOT NULL, run integer NOT NULL, operation text NOT NULL, verdict text, common
    bigint, intent text, outcome text, claim text, done_at bigint
) WITH (fillfactor = 40);
CREATE INDEX not_done ON entries (chunk, seq) WHERE done_at IS NULL;
CREATE INDEX things ON entries (thing) WHERE done_at IS NULL AND thing IS NOT NULL;
CREATE INDEX not_applied ON entries (verdict, seq) WHERE verdict <> 'applied';
CREATE INDEX open_chunks ON chunks (id) WHERE NOT done;
INSERT INTO facts VALUES ('schema', '1');
"""
# One transaction at a time, so that each sees the chunks to which the previous one assigned its things.
IN_TURN = "SELECT pg_advisory_xact_lock(hashtext(current_schema()))"
_LOCK = "SET LOCAL lock_timeout = '2s'"  # who waits for a table's lock makes all others wait behind it
_SLICE = 20_000  # rows that one transaction changes
_COUNTED_AT_ONCE = 200_000


@attrs.frozen(kw_only=True)
class Step:
    """
    The step to one version from the one before it.

    *tables* is SQL for one short transaction. *indexes* are then built, by name: what follows ``ON``. *fill*
    changes rows. Each of them must do nothing if it is done already.
    """

    tables: str = ""
    indexes: Mapping[str, str] = attrs.field(factory=dict[str, str])
    fill: Callable[[Pool], Awaitable[None]] | None = None


# --- version 2: the states that finished writes left, and things by the names of today

# Packages of version 1 may have made the table already, and then changed the names as well.
_STATES = """
INSERT INTO facts SELECT 'named_to', '0' WHERE to_regclass('states') IS NULL ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS states
    (thing text PRIMARY KEY, seq bigint NOT NULL, team text, state text, stamp bigint);
"""
# Older packages named things TEAM /webhooks/ID and TEAM new URL TAG.
_NAME = rf"""
UPDATE entries SET thing = CASE operation
    WHEN 'webhooks.create' THEN regexp_replace(thing, '^\S+ new ([^ #]*).*$', 'url \1')
    WHEN 'sheets.save_mapping' THEN regexp_replace(thing, '^(\S+) (/\S+)$', '\2 \1')
    ELSE regexp_replace(thing, '^\S+ /', '/') END
WHERE seq > $1 AND seq <= $2 AND thing IS NOT NULL
    AND (done_at IS NULL OR verdict = '{Verdict.UNKNOWN}' OR claim IS NOT NULL)
"""  # noqa: S608 - our own text
_NOTE = f"""
INSERT INTO states (thing, seq) SELECT regexp_replace(thing, '^\\S+ /', '/'), max(seq) FROM entries
    WHERE seq > $1 AND seq <= $2 AND state = 2 AND verdict NOT IN ('{NO_EFFECT[0]}', '{NO_EFFECT[1]}')
    AND operation IN ('journeys.update', 'webhooks.update', 'webhooks.delete') GROUP BY 1
ON CONFLICT (thing) DO UPDATE SET seq = greatest(states.seq, excluded.seq)
"""  # noqa: S608 - our own text
_TOGETHER = """
UPDATE entries e SET chunk = m.chunk FROM (
    SELECT thing, min(chunk) AS chunk FROM entries WHERE done_at IS NULL AND thing IS NOT NULL
    GROUP BY thing HAVING count(DISTINCT chunk) > 1
) m WHERE e.thing = m.thing AND e.done_at IS NULL
"""
_TO = "SELECT max(seq) FROM (SELECT seq FROM entries WHERE seq > $1 ORDER BY seq LIMIT $2) AS part"


async def _name_things(pool: Pool) -> None:
    """Rename the things of a journal without ``states`` to their present names, in slices."""

    async def name(connection: Any) -> bool:  # Any: asyncpg has no types
        await connection.execute(IN_TURN)
        at = await connection.fetchval("SELECT value FROM facts WHERE name = 'named_to' FOR UPDATE")
        if at is None:
            return False
        to = await connection.fetchval(_TO, int(at), _SLICE)
        if to is None:
            await connection.execute(_TOGETHER)
            await connection.execute("DELETE FROM facts WHERE name = 'named_to'")
            return False
        await connection.execute(_NAME, int(at), to)
        await connection.execute(_NOTE, int(at), to)
        await connection.execute("UPDATE facts SET value = $1 WHERE name = 'named_to'", str(to))
        return True

    while await pool.ask(name):
        pass


# --- version 4: counts of entries, kept as they change

COUNTED = """state, verdict, coalesce(strpos(outcome, '"lost":true') > 0, false) AS lost,
    coalesce(strpos(outcome, '"overtaken":true') > 0, false) AS overtaken"""


def _appending(to: str, given: Mapping[str, int]) -> str:
    """Return what appends to the table *to* how often each count is in the tables *given*, by their signs."""
    parts = (f"SELECT {COUNTED}, {sign} AS one FROM {table}" for table, sign in given.items())  # noqa: S608 - our own text
    return f"""
        INSERT INTO {to} (state, verdict, lost, overtaken, many)
        SELECT state, verdict, lost, overtaken, sum(one) FROM ({" UNION ALL ".join(parts)}) AS given
        GROUP BY 1, 2, 3, 4 HAVING sum(one) <> 0
    """  # noqa: S608 - our own text


_GIVEN = {"INSERT": {"fresh": 1}, "UPDATE": {"fresh": 1, "gone": -1}, "DELETE": {"gone": -1}}
_KEPT = " ".join(f"WHEN '{op}' THEN {_appending('counts', given)};" for op, given in _GIVEN.items())
_ANEW = " ".join(f"WHEN '{op}' THEN $${_appending('%I.counts', given)}$$" for op, given in _GIVEN.items())
# Each statement that changes entries appends what it adds to the counts, so no row is waited for.  To plan
# that takes longer than to run it.  Only sessions that surely find this journal's table may keep the plan, as
# those of workers do.
_COUNT_ENTRIES = f"""
CREATE OR REPLACE FUNCTION count_entries() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    IF current_schemas(true) = ARRAY['pg_catalog', TG_TABLE_SCHEMA] THEN
        CASE TG_OP {_KEPT} END CASE;
    ELSE
        EXECUTE format(CASE TG_OP {_ANEW} END, TG_TABLE_SCHEMA);
    END IF;
    RETURN NULL;
END $body$;
"""
_COUNTS = f"""
CREATE TABLE IF NOT EXISTS counts (
    id bigserial PRIMARY KEY, state smallint NOT NULL, verdict text, lost boolean NOT NULL,
    overtaken boolean NOT NULL, many bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
{_COUNT_ENTRIES}
"""
_COUNTING = "".join(
    f"""
    DROP TRIGGER IF EXISTS count_{event} ON entries;
    CREATE TRIGGER count_{event} AFTER {event} ON entries REFERENCING {tables}
        FOR EACH STATEMENT EXECUTE FUNCTION count_entries();
    """
    for event, tables in {
        "insert": "NEW TABLE AS fresh",
        "update": "OLD TABLE AS gone NEW TABLE AS fresh",
        "delete": "OLD TABLE AS gone",
    }.items()
)
_COUNT = f"""
INSERT INTO counts (state, verdict, lost, overtaken, many)
SELECT {COUNTED}, count(*) AS many FROM entries WHERE seq > $1 AND seq <= $2 GROUP BY 1, 2, 3, 4
"""  # noqa: S608 - our own text


async def _count(pool: Pool) -> None:
    """
    Count the entries there are, and let every change be counted from then on.

    The snapshot that is counted is taken while nobody can change an entry, which is a moment only.
    """
    # Not by `ask`, which could repeat a part of this: the lock, without the snapshot.
    async with pool.lent() as counting, counting.transaction(isolation="repeatable_read"):
        async with pool.lent() as locking, locking.transaction():
            await locking.execute(f"{_LOCK}; LOCK TABLE entries IN SHARE ROW EXCLUSIVE MODE")
            await locking.execute(_COUNTING)
            await locking.execute("DELETE FROM counts")
            await counting.execute("SELECT 1")
        at = 0
        while (to := await counting.fetchval(_TO, at, _COUNTED_AT_ONCE)) is not None:
            await counting.execute(_COUNT, at, to)
            at = to


# --- version 5: the list of workers

_WORKERS = """
CREATE TABLE IF NOT EXISTS workers (
    name text PRIMARY KEY, host text NOT NULL, pid integer NOT NULL,
    begun timestamptz NOT NULL DEFAULT now(), seen timestamptz NOT NULL DEFAULT now(),
    done bigint NOT NULL, rate float8 NOT NULL, chunks integer NOT NULL,
    ended boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);
"""

_LISTED = Step(tables=_WORKERS)
_COUNTED = Step(tables=_COUNTS, fill=_count)


# --- the results that each run has given, and its input

_RUNS = """
ALTER TABLE entries ADD COLUMN IF NOT EXISTS position bigint, ADD COLUMN IF NOT EXISTS giver integer;
CREATE SEQUENCE IF NOT EXISTS positions;
CREATE TABLE IF NOT EXISTS runs (
    run integer PRIMARY KEY, began timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen timestamptz NOT NULL DEFAULT clock_timestamp(), ended boolean NOT NULL DEFAULT false,
    taken bigint NOT NULL DEFAULT 0, given_by integer, has_open_input boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);
"""

# The step at index n leads to version n + 2.
_STEPS: tuple[Step, ...] = (
    Step(
        tables=_STATES,
        indexes={
            "unknown_things": f"entries (thing) WHERE verdict = '{Verdict.UNKNOWN}' AND thing IS NOT NULL",
            "claimed_things": "entries (thing) WHERE claim IS NOT NULL",
        },
        fill=_name_things,
    ),
    Step(indexes={"claimed": "entries (seq) WHERE claim IS NOT NULL"}),
    _COUNTED,
    _LISTED,
    Step(tables=_RUNS, indexes={"given": "entries (giver, position) WHERE position IS NOT NULL"}),
    Step(tables=_COUNT_ENTRIES),  # which before was planned anew each time
)
LATEST = len(_STEPS) + 1
COUNTS_KEPT_FROM = _STEPS.index(_COUNTED) + 2
WORKERS_KEPT_FROM = _STEPS.index(_LISTED) + 2


async def migrate(pool: Pool, schema: str) -> None:
    """
    Run the steps that the journal in *schema* still needs. Waits while another worker does.

    Raises:
        JournalError: The database stayed away, or refused a statement.

    """

    async def run() -> None:
        for version, step in enumerate(_STEPS, 2):
            if int(await _value(pool, "schema")) < version:
                await _run(pool, step)
                await pool.fetch("UPDATE facts SET value = $1 WHERE name = 'schema'", str(version))

    await pool.alone(f"{schema} migration", run)


async def _value(pool: Pool, name: str) -> str:
    return str((await pool.fetch("SELECT value FROM facts WHERE name = $1", name))[0][0])


async def _run(pool: Pool, step: Step) -> None:
    if step.tables:
        await _in_short(pool, step.tables)
    for name, on in step.indexes.items():
        await _build(pool, name, on)
    if step.fill is not None:
        await step.fill(pool)


async def _in_short(pool: Pool, text: str) -> None:
    """Run statements that lock tables, in one transaction that gives way to others."""

    async def run(connection: Any) -> None:  # Any: asyncpg has no types
        await connection.execute(_LOCK)
        await connection.execute(text)

    await pool.ask_for_lock(run)


async def _build(pool: Pool, name: str, on: str) -> None:
    """Build an index, without blocking those who write to the table unless it is empty."""
    table = on.partition(" ")[0]
    # A build that was stopped may go on in the server. This waits for it, and no build waits for this.
    await _in_short(pool, f"LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE")
    rows = await pool.fetch("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)", name)
    if rows and rows[0][0]:
        return
    if not await pool.fetch(f"SELECT 1 FROM {table} LIMIT 1"):  # noqa: S608 - our own text
        await _in_short(pool, f"DROP INDEX IF EXISTS {name}; CREATE INDEX {name} ON {on}")
        return
    if rows:  # of a build that failed or was stopped
        await pool.at_leisure(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
    await pool.at_leisure(f"CREATE INDEX CONCURRENTLY {name} ON {on}")
