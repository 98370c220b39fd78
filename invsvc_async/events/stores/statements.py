"""
The SQL of the stores of events, in SQLite and PostgreSQL; ``scripts`` has the operations that run it.

In the order of a delivery's life: the table; how it is stored; leases and their ends; ordering keys; what
people do with an event, and see of it; pruning.

``storage/dialect`` explains ``$1`` and the words in braces that both kinds of stores have.  These are chosen
here: ``{t}`` is the table; ``{now}`` and ``{began}`` are the clock of leases, which PostgreSQL reads after a
row was locked, or before; ``{calendar}`` is that for display and ``prune``; ``{picked}`` chooses the rows
whose ids a table expression of that name has.  ``{id}`` and ``{bytes}`` are types.  A file has only one
table, ``delivery``, and beside it facts.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from invsvc_async.events.event import CAUGHT_UP_KEY
from invsvc_async.events.stores import STATES, State
from invsvc_async.storage.schema import Migration, Schema

# --- the table and its versions

CREATE: Final = (
    # ``due`` of an open delivery is the end of its lease or delay; otherwise it is when the delivery ended.
    # Of the open ones with an ordering key, all but one are due never; the others have none.
    """
    CREATE TABLE {t} (
        id {id},
        key text NOT NULL,
        type text NOT NULL,
        body {bytes},
        state text NOT NULL CHECK (state IN ('open', 'handled', 'dead')),
        due float8 NOT NULL,
        token text NOT NULL DEFAULT '',
        attempts integer NOT NULL DEFAULT 0,
        reason text NOT NULL DEFAULT '',
        received float8 NOT NULL,
        handler text NOT NULL DEFAULT '',
        ordering_key text,
        UNIQUE (key, handler)
    )
    """,
    "CREATE INDEX {t}_waiting ON {t} (due, id) WHERE state = 'open' AND body IS NOT NULL",
    "CREATE INDEX {t}_next ON {t} (handler, due, id) WHERE state = 'open' AND body IS NOT NULL",
    "CREATE INDEX {t}_claimed ON {t} (due) WHERE state = 'open' AND body IS NULL",
    "CREATE INDEX {t}_handled ON {t} (due) WHERE state = 'handled'",
    "CREATE INDEX {t}_kept ON {t} (due) WHERE state = 'handled' AND body IS NOT NULL",
    "CREATE INDEX {t}_open ON {t} (id) WHERE state = 'open'",
    "CREATE INDEX {t}_dead ON {t} (id) WHERE state = 'dead'",
    "CREATE INDEX {t}_buried ON {t} (due) WHERE state = 'dead'",
    "CREATE INDEX {t}_ordered ON {t} (ordering_key, id) WHERE ordering_key IS NOT NULL",
)
_TYPES: Final = "type IN ('invoice.created', 'invoice.canceled')"
_CATCH_UP: Final = Migration(
    2,
    (
        "ALTER TABLE {t} ADD COLUMN subject text",
        "ALTER TABLE {t} ADD COLUMN as_of float8",
        "CREATE INDEX {t}_subject ON {t} (subject, id) WHERE subject IS NOT NULL",
        # of events that a receiver of version 1 has stored: it may still do so
        f"CREATE INDEX {{t}}_unnamed ON {{t}} (id) WHERE subject IS NULL AND {_TYPES}",
    ),
)
SCHEMA: Final = Schema(
    "Handle what is open in it with that version, or choose another file or table",
    (_CATCH_UP,),
)

# --- a file beside the table: facts

# ``schema`` is the version of the table; ``opened`` and ``checked`` say as what the file was opened and
# checked last; ``ahead`` is added to the steady clock.
FACTS: Final = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value NUMERIC NOT NULL) WITHOUT ROWID",
    f"INSERT INTO facts VALUES ('schema', {SCHEMA.version}), ('opened', ''), ('checked', ''), ('ahead', 0)",
)
# Whether it is a file of events.
TABLES_IN_FILE: Final = "SELECT name FROM sqlite_master"
VERSION: Final = "SELECT max(value) FROM facts WHERE name = 'schema'"
ALL_FACTS: Final = "SELECT name, value FROM facts"
# The end of the last lease or delay, after a start of the machine: of each kind, an index has the times.
LAST_END: Final = (
    "SELECT max(due) FROM delivery WHERE state = 'open' AND body IS {} AND due < 9e999"
)
NOTE_FACT: Final = "UPDATE facts SET value = ?2 WHERE name = ?1"
# As what the file was checked last, and its size.
CHECKED: Final = """
    SELECT value, page_count * page_size FROM facts, pragma_page_count, pragma_page_size
    WHERE name = 'checked'
"""
NOTE_CHECKED: Final = "UPDATE facts SET value = ? WHERE name = 'checked'"

# --- storing deliveries

# The fields of an ``Entry``, and of a ``StoredEvent``, as they are selected.
ENTRY_COLUMNS: Final = (
    "id",
    "token",
    "key",
    "type",
    "body",
    "attempts",
    "handler",
    "ordering_key",
)
EVENT_COLUMNS: Final = (
    "id",
    "key",
    "type",
    "body",
    "reason",
    "attempts",
    "received_at",
    "state",
    "handler",
)
_IS_CLAIM: Final = "state = 'open' AND body IS NULL"  # until a body comes
# An event made from a list stands for the delivered ones with its subject that were queued before.
_COVERED: Final = f"""
    SELECT 1 FROM {{t}} AS caught WHERE caught.key = '{CAUGHT_UP_KEY}' || %s AND caught.as_of >= %s
"""
# Many deliveries, of which those are left out whose event is stored for another handler, or that an event
# made from a list stands for.  The result is whether each is new: a token shows that a claim was there, of
# its handler or of another.  PostgreSQL gets them in the order of keys, in which every process locks them, so
# that they cannot deadlock; ``age`` keeps the order in which they came.
PUT: Final = f"""
    INSERT INTO {{t}} AS kept (key, type, body, handler, state, due, received, token, subject, as_of)
    SELECT key, type, body, handler, 'open', {{began}} - age, {{calendar}},
        CASE WHEN EXISTS (SELECT 1 FROM {{t}} AS other WHERE other.key = given.key) THEN 'claim' ELSE '' END,
        subject, as_of
    FROM {{rows 1 key:text type:text body:bytea handler:text age:float8 subject:text as_of:float8}}
    WHERE NOT EXISTS (
        SELECT 1 FROM {{t}} AS other
        WHERE other.key = given.key AND other.handler <> given.handler AND NOT ({_IS_CLAIM})
    )
    AND NOT EXISTS ({_COVERED % ("given.subject", "given.as_of")})
    ON CONFLICT (key, handler) DO UPDATE SET body = excluded.body
    WHERE kept.state = 'open' AND kept.body IS NULL
    RETURNING key, token = ''
"""
# One delivery; nothing changes if its handler has the event.
INSERT: Final = """
    INSERT INTO {t} (key, type, body, state, due, received, handler, ordering_key, subject, as_of)
    VALUES ($1, $2, $3, 'open', {now} + $4, coalesce($5, {calendar}), $6, $7, $8, $9)
    ON CONFLICT (key, handler) DO NOTHING {changed}
"""
# One that nobody handles: a dead letter from the beginning.
INSERT_DEAD: Final = """
    INSERT INTO {t} (key, type, body, state, due, reason, received, handler)
    VALUES ($1, $2, $3, 'dead', {calendar}, $4, {calendar}, $5)
    ON CONFLICT (key, handler) DO NOTHING {changed}
"""
# The rows of a key, and whether each is only a claim; they stay so until the commit.
KNOWN: Final = f"SELECT {_IS_CLAIM} FROM {{t}} WHERE key = $1 {{update}}"
# Stores the body that a claim lacks.
COMPLETE: Final = (
    f"UPDATE {{t}} SET body = $3 WHERE key = $1 AND handler = $2 AND {_IS_CLAIM}"
)

# --- events made from lists

# Many deliveries without ordering keys, in their order.
INSERT_MANY: Final = """
    INSERT INTO {t} (key, type, body, handler, state, due, received, subject, as_of)
    SELECT key, type, body, handler, 'open', {began} - age, {calendar}, subject, as_of
    FROM {rows 1 key:text type:text body:bytea handler:text age:float8 subject:text as_of:float8}
    WHERE true
    ON CONFLICT (key, handler) DO NOTHING
"""
# A row: an event made from a list stands for the delivery.
IS_COVERED: Final = _COVERED % ("{arg 1 text}", "{arg 2 float8}")
# Of the subjects $1 those of which the store has an event, and not only a claim.
SEEN_SUBJECTS: Final = f"""
    SELECT DISTINCT subject FROM {{t}}
    WHERE subject IS NOT NULL AND subject {{any 1 text}} AND NOT ({_IS_CLAIM})
"""
# Until the transaction ends, others only read, so that no delivery stores meanwhile what was not there.
# Autovacuum gives way.
LOCK_ALONE: Final = "{postgres} LOCK TABLE {t} IN SHARE ROW EXCLUSIVE MODE"
# Waits for the end of such a transaction, and keeps others out, until this one ends.
LOCK_AMONG_OTHERS: Final = "{postgres} LOCK TABLE {t} IN ROW EXCLUSIVE MODE"
# Events that a receiver of version 1 has stored, without a subject; then their subjects.
UNNAMED: Final = f"""
    SELECT id, received, body FROM {{t}}
    WHERE subject IS NULL AND {_TYPES} AND NOT ({_IS_CLAIM}) ORDER BY id LIMIT $1
"""
NAME_SUBJECT: Final = (
    "UPDATE {t} SET subject = $3 WHERE id = $1 AND received = $2 AND subject IS NULL"
)
# What was handled before may have been pruned.
FIRST_HANDLED: Final = (
    "SELECT due FROM {t} WHERE state = 'handled' ORDER BY due LIMIT 1"
)
# The last event of which no subject is known.
LAST_OF_NO_SUBJECT: Final = (
    "SELECT received FROM {t} WHERE subject = '' ORDER BY id DESC LIMIT 1"
)

# --- leases

# Leases the delivery of a key and a handler to $5: a new one, or one whose lease or delay is over.
CLAIM: Final = f"""
    INSERT INTO {{t}} AS kept (key, type, body, state, due, token, attempts, handler, received, subject)
    VALUES ($1, $2, $3, 'open', {{now}} + $4, $5, 1,
        coalesce((SELECT handler FROM {{t}} WHERE key = $1 AND handler = ''), $6), {{calendar}}, $7)
    ON CONFLICT (key, handler) DO UPDATE
    SET due = {{now}} + $4, token = excluded.token, attempts = kept.attempts + 1
    WHERE kept.state = 'open' AND kept.due <= {{now}}
    RETURNING {", ".join(ENTRY_COLUMNS)}
"""
# Why a claim has found nothing to lease.
CLAIMED: Final = """
    SELECT state, body IS NOT NULL FROM {t} WHERE key = $1 AND handler IN ('', $2) ORDER BY handler LIMIT 1
"""
_DUE: Final = "SELECT id, due FROM {t} WHERE state = 'open' AND body IS NOT NULL AND"
# ``{picked}``: those rows, after a table expression of this name.
PICKED_IN_DATABASE: Final = "= ANY (ARRAY(SELECT id FROM picked))"
PICKED_IN_FILE: Final = "IN (SELECT id FROM picked)"
# Leases those that a table expression before it has picked.
_LEASE: Final = f"""
    UPDATE {{t}} SET due = {{now}} + $2, token = $3, attempts = attempts + 1
    WHERE id {{picked}} RETURNING {", ".join(ENTRY_COLUMNS)}
"""


@cache
def take(handlers: int | None) -> str:
    """Return the statement for so many handlers: each alone, so that no entry of another handler is read."""
    if handlers is None:
        return f"WITH picked AS ({_DUE} due <= {{began}} ORDER BY due, id LIMIT $1 {{skip}}) {_LEASE}"
    names = range(4, 4 + handlers)
    each = [  # compared as rows, so that no other index fits
        f"due_{name} AS ({_DUE} (handler, due) >= (${name}, 0) AND (handler, due) <= (${name}, {{began}})"
        " ORDER BY handler, due, id LIMIT $1 {skip})"
        for name in names
    ]
    found = " UNION ALL ".join(f"SELECT id, due FROM due_{name}" for name in names)
    each.append(
        f"picked AS (SELECT id FROM ({found}) AS found ORDER BY due, id LIMIT $1)"
    )
    return f"WITH {', '.join(each)} {_LEASE}"


# The length of a lease is in its token, since processes may have leases of other lengths (``token_of`` in
# ``scripts``).  That of an earlier version, whose token lacks it, is taken for $1.
_LENGTH: Final = "coalesce(nullif(split_part(token, ':', 2), '')::float8, $1)"
# In PostgreSQL, after its clock was set back (``postgres``): times that are too far in the future become
# earlier.  $1 is the length of a lease, $2 the handlers whose leases have it, or NULL for those of all.
CORRECT: Final = f"""
    UPDATE {{t}} SET due = CASE WHEN token = '' THEN {{now}} ELSE {{now}} + {_LENGTH} END
    WHERE id = ANY (ARRAY(
        SELECT id FROM {{t}} WHERE state = 'open' AND body IS NOT NULL AND due > {{now}} AND due < 'Infinity'
            AND (token = '' AND attempts = 0 OR token <> '' AND due > {{now}} + {_LENGTH})
            AND ($2::text[] IS NULL OR handler = ANY ($2::text[]))
        LIMIT 1000 {{skip}}
    ))
"""

# --- the ends of leases

# Only by the owner of the lease, whose token is $2.
_OURS: Final = "WHERE id = $1 AND token = $2 AND state = 'open'"
_END: Final = f"UPDATE {{t}} SET %s = $3, due = {{calendar}}, ordering_key = NULL {_OURS} {{changed}}"
HANDLED: Final = _END % "state = 'handled', body"
BURIED: Final = _END % "state = 'dead', reason"
# A claim without a body: its delivery is still to come.
FORGET_CLAIM: Final = f"DELETE FROM {{t}} {_OURS} AND body IS NULL {{changed}}"
RELEASE: Final = f"UPDATE {{t}} SET due = {{now}} + $3, token = '' {_OURS} {{changed}}"
# Until the commit, the lease is ours.
HELD: Final = f"SELECT key, received FROM {{t}} {_OURS} {{update}}"
# Handlers that have the event already.
OTHER_HANDLERS: Final = "SELECT handler FROM {t} WHERE key = $1 AND id <> $2"
# Gives the row, which was for no handler yet, to the first handler.
ASSIGN: Final = f"""
    UPDATE {{t}} SET due = {{now}} + $3, token = '', attempts = 0, handler = $4, ordering_key = $5 {_OURS}
"""

# --- ordering keys

# The open one of an ordering key that comes next.
FIRST_OF_ORDER: Final = "SELECT id FROM {t} WHERE ordering_key = $1 ORDER BY id LIMIT 1"
# Whoever changes the open deliveries of an ordering key takes this lock first.
LOCK_ORDER: Final = """
    {postgres} SELECT pg_advisory_xact_lock(hashtextextended($1, '{t}'::regclass::oid::bigint))
"""
# The next of an ordering key is due now.
ADVANCE: Final = f"UPDATE {{t}} SET due = {{now}} WHERE id = ({FIRST_OF_ORDER})"

# --- what people do

# SQLite may give the id of a deleted row to a new one.
_SAME: Final = "WHERE id = $1 AND received = $2"
# An open one that is for no handler yet will be for all that it fits.
GIVEN: Final = f"""
    SELECT type, body, key, subject, as_of FROM {{t}}
    {_SAME} AND body IS NOT NULL AND NOT (state = 'open' AND handler = '')
"""
# To be handled once more: a dead one, or a handled one whose body is kept.
REVIVE: Final = f"""
    UPDATE {{t}} SET state = 'open', due = {{now}}, token = '', attempts = 0
    {_SAME} AND (state = 'dead' OR (state = 'handled' AND body IS NOT NULL)) {{changed}}
"""
# What dropping has to know; and once more under the lock of the ordering key.
DUE_AND_ORDER: Final = f"SELECT due, ordering_key FROM {{t}} {_SAME}"
DUE_NOW: Final = f"SELECT due FROM {{t}} {_SAME}"
# Not while somebody handles it, nor a claim whose body is still to come.
_DROPPABLE: Final = f"""
    {_SAME} AND (state = 'dead' OR body IS NOT NULL)
    AND (state <> 'open' OR token = '' OR due <= {{now}}) {{changed}}
"""
# An event without a key is deleted.  One with a key has to stay known, so it is emptied.
DROP: Final = f"DELETE FROM {{t}} {_DROPPABLE}"
EMPTY: Final = f"""
    UPDATE {{t}} SET due = CASE state WHEN 'handled' THEN due ELSE {{calendar}} END, state = 'handled',
        body = NULL, ordering_key = NULL
    {_DROPPABLE}
"""

# --- what people see

_EVENTS: Final = """
    SELECT id, key, type, body, reason, attempts, received, state, handler
    FROM {t} WHERE %s id > $1 AND id <= $2 ORDER BY id LIMIT $3
"""


def events_in(state: State | None) -> str:
    """Return the statement that selects the next $3 events in *state*, or all, with ids over $1, up to $2."""
    # only a known word becomes a part of the text
    is_in_state = (
        "" if state is None else f"state = '{STATES[STATES.index(state)]}' AND"
    )
    return _EVENTS % is_in_state


# The last id of the next $2 rows after $1.
WALK: Final = "SELECT max(id) FROM (SELECT id FROM {t} WHERE id > $1 ORDER BY id LIMIT $2) AS slice"
# In the order of an index, so that no bodies are read.
_STATS: Final = """
    SELECT many, (SELECT received FROM {t} WHERE id = least) FROM (
        SELECT count(*) AS many, min(id) AS least FROM (
            SELECT id FROM {t} WHERE state = '%s' ORDER BY %s LIMIT $1
        ) AS counted
    ) AS found
"""


def stats_of(state: State) -> str:
    """Return the statement that counts the events in *state*, up to $1, and tells when the first came."""
    return _STATS % (state, "due" if state == "handled" else "id")


# How many are due, and since when the first one; the time; and how many are dead.  Each number up to $1.
BACKLOG: Final = f"""
    SELECT count(*), min(due), {{began}},
        (SELECT count(*) FROM (SELECT id FROM {{t}} WHERE state = 'dead' LIMIT $1) AS letters)
    FROM ({_DUE} due <= {{began}} ORDER BY due, id LIMIT $1) AS waiting
"""

# --- pruning

# Some rows at a time, without those that others have locked.
_OLD: Final = """
    WITH picked AS (SELECT id FROM {t} WHERE %s - $1 ORDER BY due LIMIT $2 {skip})
    %s WHERE id {picked} RETURNING id
"""
PRUNES: Final = {
    "claims": _OLD
    % ("state = 'open' AND body IS NULL AND due < {began}", "DELETE FROM {t}"),
    "bodies": _OLD
    % (
        "state = 'handled' AND body IS NOT NULL AND due < {calendar}",
        "UPDATE {t} SET body = NULL",
    ),
    "dead": _OLD % ("state = 'dead' AND due < {calendar}", "DELETE FROM {t}"),
    "handled": _OLD % ("state = 'handled' AND due < {calendar}", "DELETE FROM {t}"),
}
