"""
Statements about entries, in the order of an entry's life.

How each store reads entries; adding them, and counting; enqueuing in transactions of the application; what
waits for its time; the next ones of lanes and of teams; what is put before a send and after it; verdicts
until they are acknowledged; reopening; deleting; and the lists that people see.  How to read them is told at
the top of ``statements``.  Claims of keys, which add entries, too, are in ``key_sql``.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Final

from invsvc_async.durable.entry import (
    CHANGING,
    CHANGING_NAMES,
    ENTRY,
    SET_CHANGING,
    WRITTEN,
    WRITTEN_NAMES,
    State,
)
from invsvc_async.durable.store.conditions import (
    ASIDE,
    DONE_AND_OPEN,
    FREED,
    IN_LANE,
    KEYED,
    NOT_APPLIED,
    NOT_ASIDE,
    ONLY_LANE,
    OPEN,
    UNFINISHED,
    UNKEYED,
    open_aside,
)
from invsvc_async.durable.store.fact_names import DIGITS_OF_TIME, FAILED_TO_TELL
from invsvc_async.durable.store.statements.schema_sql import FLAGS_IN_TEXT
from invsvc_async.durable.store.statements.store_sql import dead
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.writes.noted import NOTED_NAMES

# --- reading entries, of which each store makes an ``Entry``: its ``entries``


def in_file(where: str) -> str:
    """Return the statement that selects the entries *where* a condition of *e* holds."""
    return f"SELECT {ENTRY} FROM {{s}}entries AS e WHERE {where}"


def in_database(where: str) -> str:
    """Return the same for PostgreSQL; the last column is the table, which may be another one than before."""
    return f"SELECT {ENTRY}, e.tableoid::text FROM {{s}}entries AS e WHERE {where}"


# Conditions for these.
OF_KEY: Final = "e.key = $1"
OF_NUMBER: Final = "e.seq = $1"
OF_NUMBERS: Final = "e.seq {any 1 bigint}"
# Common parts of their intents.
SELECT_COMMONS: Final = "SELECT number, text FROM {s}commons"
SELECT_COMMONS_IN_FILE: Final = "SELECT number, text FROM commons"

# --- adding entries: ``adding``

# Before the entries that need them.  The number is a digest of the text, so what is there stays.
INSERT_COMMONS: Final = """
INSERT INTO {s}commons (number, text) SELECT * FROM {rows 1 number:bigint text:text} WHERE true
    ON CONFLICT DO NOTHING
"""
# The same, in a group of puts.
INSERT_COMMON_IN_FILE: Final = (
    "INSERT INTO commons VALUES (?, ?) ON CONFLICT DO NOTHING"
)
# The keys of entries, and of each what a ``KnownEntry`` has.
SELECT_KNOWN: Final = (
    "SELECT key, seq, digest, state, done_at FROM {s}entries WHERE key {any 1 text}"
)
# Processes that add entries take numbers in turn, so that the order of numbers is that of the commits.
# Otherwise a lane could be read beyond the place of an entry that is committed later, and the entry stay
# unread for a while.  (What an application's transaction enqueues may be committed later than that: see
# ``listen`` in ``postgres``.  Claims of keys are not read by lanes.)
#
# A file has one writer, which takes numbers from SQLite's own table; the row is not there before the first
# entry.
NEXT_NUMBERS: Final = """
{postgres}WITH turn AS MATERIALIZED (SELECT pg_advisory_xact_lock(hashtext('{s}entries')) AS done)
    SELECT nextval('{s}entries_seq_seq') FROM turn CROSS JOIN generate_series(1, {arg 1 bigint})
"""
NEXT_NUMBERS_IN_FILE: Final = (
    "{sqlite}UPDATE sqlite_sequence SET seq = seq + $1 WHERE name = 'entries'"
    " RETURNING seq"
)
FIRST_NUMBERS_IN_FILE: Final = (
    "{sqlite}INSERT INTO sqlite_sequence (name, seq) VALUES ('entries', $1)"
    " RETURNING seq"
)
_NEW_COLUMNS: Final = ", ".join(("seq", "place", "lane", *WRITTEN_NAMES))
# Entries whose keys are known stay as they are, and are not returned.
ADD: Final = f"""
INSERT INTO {{s}}entries ({_NEW_COLUMNS}) SELECT {_NEW_COLUMNS}
    FROM {{rows 1 seq:bigint place:bigint lane:bigint {WRITTEN}}} WHERE true
    ON CONFLICT (key) DO NOTHING RETURNING seq
"""
# The times of new entries, which were inserted aside.  The conditions spare an entry that was there under the
# key: it is not aside, or has its time, or was sent before.
NOTE_TIMES: Final = f"""
UPDATE {{s}}entries AS e SET not_before = given.not_before, due_at = given.not_before
    FROM {{rows 1 key:text not_before:bigint}}
    WHERE e.key = given.key AND e.{ASIDE} AND e.due_at IS NULL AND e.state = {State.TO_DO:d}
"""

# --- counting them, in a batch: ``change_counts`` of ``tables``; a file does so by triggers (``schema_sql``)


def _add_to_counts(only: str, part: str) -> str:
    """Return the statement that adds to the counts of *part*, for the stores that *only* names."""
    return f"""
{only}INSERT INTO {{s}}counts AS c (part, state, verdict, flags, many)
    SELECT {part}, state, verdict, flags, many
    FROM {{rows 1 state:smallint verdict:text flags:smallint many:bigint}} WHERE true
    ON CONFLICT (part, state, verdict, flags) DO UPDATE SET many = c.many + excluded.many
"""


# In a store in PostgreSQL that counts; and in a file, where triggers see no change of flags alone.
ADD_TO_COUNTS: Final = _add_to_counts("{counted}", "{part}")
ADD_TO_COUNTS_OF_FILE: Final = _add_to_counts("{sqlite}", "0")

# --- enqueuing, in a transaction of the application in PostgreSQL: ``enqueued``

# The lock is taken before the number, and lasts as long as the caller's transaction.  So the writes of one
# thing are numbered in the order in which their transactions commit.  Each part selects from the one before
# (``notified`` from ``first``, ``numbered`` from it), which makes PostgreSQL run them in this order.
_ENQUEUE: Final = """
WITH first AS MATERIALIZED ({lock}),
notified AS MATERIALIZED (SELECT pg_notify(CAST($1 AS text), CAST($2 AS text)) AS done FROM first),
numbered AS MATERIALIZED (
    SELECT nextval('{schema}.entries_seq_seq') AS number FROM notified WHERE notified.done IS NOT NULL
)
INSERT INTO {schema}.entries (seq, place, lane, {names})
SELECT number, number, CAST($3 AS bigint), {values} FROM numbered ON CONFLICT (key) DO NOTHING RETURNING seq
"""
# Columns with their types.
_ENQUEUED_COLUMNS: Final = f"{WRITTEN} not_before:bigint due_at:bigint".split()
_ENQUEUED_TYPES: Final = {
    name: kind for name, _, kind in (each.partition(":") for each in _ENQUEUED_COLUMNS)
}
_WITH_LOCK: Final = "SELECT pg_advisory_xact_lock(CAST($4 AS bigint)) AS done"
# A write that has no thing waits for no other.  The parameter of the lock has to be in the statement all the
# same.
_WITHOUT_LOCK: Final = "SELECT CAST($4 AS bigint) AS done"


@cache
def enqueue(
    schema: str,
    names: tuple[str, ...],
    *,
    is_alone: bool,
) -> str:
    """Return the statement that inserts the columns *names* of a write, which *is_alone* without a thing."""
    # The first four parameters are the channel, what it is told, the lane, and the lock.
    values = (
        f"CAST(${at} AS {_ENQUEUED_TYPES[name]})" for at, name in enumerate(names, 5)
    )
    return _ENQUEUE.format(
        schema=schema,
        lock=_WITHOUT_LOCK if is_alone else _WITH_LOCK,
        names=", ".join(names),
        values=", ".join(values),
    )


# Selects those of the columns $3 that the tables lack, and inserts only if they lack none.  In one statement,
# because each is a round trip of the application.
ENQUEUE_COMMON: Final = """
WITH lacking AS (
    SELECT needed FROM unnest(string_to_array(CAST($3 AS text), ' ')) AS given (needed) WHERE NOT EXISTS (
        SELECT 1 FROM pg_attribute
        WHERE attrelid = CAST('{schema}.entries' AS regclass) AND attname = given.needed
    )
), stored AS (
    INSERT INTO {schema}.commons (number, text)
    SELECT CAST($1 AS bigint), CAST($2 AS text) WHERE NOT EXISTS (SELECT 1 FROM lacking)
    ON CONFLICT DO NOTHING
)
SELECT needed FROM lacking
"""
# Whether the entry of a key is the same write.
COMPARE_ENQUEUED: Final = (
    "SELECT digest = CAST($2 AS text) FROM {schema}.entries"
    " WHERE key = CAST($1 AS text)"
)

# --- a retry waits for such transactions: ``enqueued``

# One that puts entries at the end of the order, by the locks that these transactions have on things: numbers,
# not rows.
THINGS_OF_KEYS: Final = (
    "SELECT thing FROM {s}entries WHERE key {any 1 text} AND thing IS NOT NULL"
)
# Only for as long as the locks are waited for.
GET_LOCK_TIMEOUT: Final = "SELECT current_setting('lock_timeout')"
SET_LOCK_TIMEOUT: Final = "SELECT set_config('lock_timeout', $1, true)"
LOCK_FOR_ENQUEUING: Final = (
    "SELECT pg_advisory_xact_lock(given.lock) FROM {rows 1 lock:bigint}"
)

# --- the same in SQLite, in the application's own file: ``application_table``

# A row: the file has an outbox.
HAS_OUTBOX: Final = "SELECT 1 FROM sqlite_master WHERE name = 'invsvc_outbox_journal'"
# A row: the table has what its second version added.
HAS_MORE: Final = "SELECT 1 FROM pragma_table_info('invsvc_outbox') WHERE name = 'more'"
# No row comes back if the key is not new.
INSERT_ROW: Final = """
INSERT INTO invsvc_outbox (base_url, common, number, key, thing, digest, operation, intent)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING RETURNING seq
"""
# The column ``more`` is only named if there is something in it: the table may be one of the first version.
# It has an object of JSON: of what is noted, the team and the time, that which is set.
INSERT_ROW_WITH_MORE: Final = INSERT_ROW.replace("intent)", "intent, more)").replace(
    "$8)", "$8, $9)"
)
# Whether the row of a key is the same write.
COMPARE_ROW: Final = (
    "SELECT digest = $3 FROM invsvc_outbox WHERE base_url = $1 AND key = $2"
)
# Which store moves the rows: another one would send them again.
GET_EPOCH_OF_MOVER: Final = (
    "SELECT epoch FROM invsvc_outbox_journal WHERE base_url = $1"
)
SET_EPOCH_OF_MOVER: Final = (
    "INSERT OR REPLACE INTO invsvc_outbox_journal VALUES ($1, $2)"
)
# Rows, of the base URL $1 and a condition that follows: the text of the common part; the ``FIELDS`` of
# ``application_table``; and ``more``.  ``more`` comes last (see ``of_first``).  What was moved has no texts
# any more: so its common part has no number, and its intent is NULL.
_ROWS: Final = """
SELECT common, seq, key, thing, digest, operation, CASE WHEN common <> '' THEN number END AS common,
    nullif(intent, '') AS intent, more FROM invsvc_outbox WHERE base_url = $1 AND
"""
# Rows that were not moved, in their order, after a number.
NEW_ROWS: Final = f"{_ROWS}moved = 0 AND seq > $2 ORDER BY seq LIMIT $3"
# Rows that were moved, after a number.
MOVED_ROWS: Final = f"{_ROWS} moved = 1 AND seq > $2 ORDER BY seq LIMIT $3"
# The row of a key, unless it was moved.
NEW_ROW: Final = f"{_ROWS} moved = 0 AND key = $2"
COUNT_NEW_ROWS: Final = (
    "SELECT count(*) FROM invsvc_outbox WHERE base_url = $1 AND moved = 0"
)
# What is noted of new rows, by which lists choose.
MORE_OF_NEW_ROWS: Final = """
SELECT more FROM invsvc_outbox WHERE base_url = $1 AND moved = 0 AND more IS NOT NULL
"""
# Once their entries are stored.  The row stays, so that the key is known; its texts go.
MARK_ROWS_MOVED: Final = """
UPDATE invsvc_outbox SET moved = 1, common = '', intent = '', more = NULL WHERE seq {any 1 bigint}
"""
# The same for rows of entries that are there, by key and digest: other writes under the keys stay new.
MARK_ROWS_OF_ENTRIES: Final = """
UPDATE invsvc_outbox SET moved = 1, common = '', intent = '', more = NULL WHERE seq IN (
    SELECT o.seq FROM {rows 2 key:text digest:text} JOIN invsvc_outbox AS o ON o.key = given.key
    WHERE o.base_url = $1 AND o.moved = 0 AND o.digest = given.digest
)
"""
# Only if it was not moved: a row comes back then.
DELETE_NEW_ROW: Final = """
DELETE FROM invsvc_outbox WHERE base_url = $1 AND key = $2 AND moved = 0 RETURNING seq
"""
# The rows of entries that are deleted in the store.  A new row under such a key is another write's.
_MOVED: Final = (
    "FROM invsvc_outbox WHERE base_url = $1 AND moved = 1 AND key {any 2 text}"
)
DELETE_MOVED_ROWS: Final = f"DELETE {_MOVED}"
MOVED_OF_KEYS: Final = f"SELECT key {_MOVED}"

# --- moving such rows into the store: ``enqueued``

_NUMBERS_OF_KEYS: Final = "SELECT seq FROM {s}entries WHERE key {any 1 text}"
# The numbers of those whose verdicts somebody is still to acknowledge.  None if nobody does so in this store:
# no verdict is taken, and none was acknowledged.
UNHEARD_OF_KEYS: Final = f"""
SELECT u.seq FROM {{s}}unheard AS u WHERE u.seq IN ({_NUMBERS_OF_KEYS}) AND (
    EXISTS (SELECT 1 FROM {{s}}unheard WHERE taker IS NOT NULL) OR EXISTS (
        SELECT 1 FROM {{s}}entries AS e WHERE e.state = {State.DONE:d}
            AND NOT EXISTS (SELECT 1 FROM {{s}}unheard AS o WHERE o.seq = e.seq)
    )
)
"""
# Entries whose keys have other writes in the application's file go, with their verdicts.
DELETE_UNHEARD_OF_KEYS: Final = (
    f"DELETE FROM {{s}}unheard WHERE seq IN ({_NUMBERS_OF_KEYS})"
)
# What the deleted write left of its thing stays: a later write to that may need it.
DELETE_REPLACED: Final = "DELETE FROM {s}entries WHERE key {any 1 text}"
# Rows marked as moved, of which the store has no entry, may have been sent.  These entries were just added.
END_LOST: Final = """
UPDATE {s}entries SET state = $1, verdict = $2, outcome = $3, done_at = $4 WHERE key {any 5 text}
"""

# --- deleting such an entry and its row: ``deleted_rows``

_KEPT: Final = (
    f"seq:bigint place:bigint lane:bigint {WRITTEN.partition(' ')[2]} claim:text flags:smallint"
    " not_before:bigint due_at:bigint added_at:bigint"
)
_KEPT_NAMES: Final = ", ".join(
    name for name, _, _ in (each.partition(":") for each in _KEPT.split())
)
# The key and all else that an open entry has, to be put back if the row cannot be deleted.
TO_PUT_BACK: Final = (
    f"SELECT key, {_KEPT_NAMES} FROM {{s}}entries WHERE key {{any 1 text}} AND {OPEN}"
)
PUT_BACK: Final = f"""
INSERT INTO {{s}}entries (key, {_KEPT_NAMES}) SELECT key, {_KEPT_NAMES}
    FROM {{rows 1 key:text {_KEPT}}} WHERE true ON CONFLICT DO NOTHING
"""

# --- what waits for its time, beside the lanes: ``due``

# Whether the entry *e* comes behind one to the same thing that is aside.
_IS_BEHIND: Final = f"""
EXISTS (SELECT 1 FROM {{s}}entries AS w WHERE w.thing = e.thing AND w.place < e.place AND {open_aside("w")})
"""
_IS_NOT_DUE: Final = f"{open_aside('w')} AND w.due_at > {{now}} * 1000"
# Of each of these lanes aside: when its next entry is due; and the time of the database (s).
NEXT_DUE: Final = f"""
SELECT given.lane, (
    SELECT w.due_at FROM {{s}}entries AS w WHERE w.lane = given.lane AND {open_aside("w")}
    ORDER BY w.due_at LIMIT 1
), {{now}} FROM {{rows 1 lane:bigint}}
"""
# Some of those that are due; the script has locked the lane.
COME_BACK: Final = f"""
UPDATE {{s}}entries AS e SET lane = $2 WHERE lane = $1 AND {open_aside("e")} AND seq IN (
    SELECT w.seq FROM {{s}}entries AS w WHERE w.lane = $1 AND {open_aside("w")} AND w.due_at <= $3
    ORDER BY w.due_at, w.place LIMIT {{arg 4 bigint}}
) RETURNING place
"""
# When the first of the entries aside before each entry comes back; NULL if none is aside any more.  FOR SHARE
# waits for a transaction that drops it.
FIRST_BEFORE: Final = f"""
SELECT e.seq, e.lane, (
    SELECT w.due_at FROM {{s}}entries AS w WHERE w.thing = e.thing AND w.place < e.place AND {open_aside("w")}
    ORDER BY w.place LIMIT 1 {{share}}
) FROM {{s}}entries AS e WHERE e.seq {{any 1 bigint}} AND e.{IN_LANE} AND e.{OPEN}
"""
# The script has locked the lanes, and has seen that the entries are behind ones that are aside.
MOVE_ASIDE: Final = """
UPDATE {s}entries AS e SET lane = given.lane, due_at = given.due_at
    FROM {rows 1 seq:bigint lane:bigint due_at:bigint} WHERE e.seq = given.seq
"""
# What was behind an entry aside that is gone comes back at once, to be looked at; but what has a time of its
# own comes back then.
MAKE_DUE: Final = f"""
UPDATE {{s}}entries AS w SET due_at = coalesce(w.not_before, 0)
    WHERE w.thing = $1 AND w.place > $2 AND {open_aside("w")}
"""
# A condition: the first entries that are aside.
FIRST_ASIDE: Final = f"""
e.lane {{any 1 bigint}} AND {open_aside("e")} ORDER BY e.seq LIMIT {{arg 2 bigint}}
"""
# How many in these lanes aside are not due, up to $2, and when the first of all is.
COUNT_NOT_DUE: Final = f"""
SELECT (SELECT count(*) FROM (
    SELECT 1 FROM {{rows 1 lane:bigint}} JOIN {{s}}entries AS w ON w.lane = given.lane AND {_IS_NOT_DUE}
    LIMIT {{arg 2 bigint}}
) AS chosen), min(first) FROM (
    SELECT (
        SELECT w.due_at FROM {{s}}entries AS w WHERE w.lane = given.lane AND {_IS_NOT_DUE}
        ORDER BY w.due_at LIMIT 1
    ) AS first FROM {{rows 1 lane:bigint}}
) AS firsts
"""

# --- the next ones of lanes: ``open_in`` of each store


def _next_open(is_behind: str) -> str:
    """
    Return the statement for PostgreSQL that selects the next open entries of the lanes $1, after their places
    $2.

    Up to $4 of each lane, without the entries $3.  *is_behind* says of each entry whether it waits behind one
    that is not due.  By lane, because the index has the order of each lane only.
    """
    return f"""
SELECT e.seq, {is_behind} FROM unnest($1::bigint[], $2::bigint[]) AS l (lane, place), LATERAL (
    SELECT seq, thing, place FROM {{s}}entries WHERE lane = l.lane AND place > l.place AND {OPEN}
        AND seq NOT IN (SELECT unnest($3::bigint[])) ORDER BY place LIMIT $4
) AS e
"""


# In an outbox, the second one: in other stores, nothing waits for its time.
NEXT_OPEN: Final = _next_open("false")
NEXT_OPEN_AND_BEHIND: Final = _next_open(_IS_BEHIND)
# The condition for reading these: some may have been dropped, ended or moved meanwhile.
STILL_OPEN: Final = (
    f"e.seq {{any 1 bigint}} AND e.{IN_LANE} AND e.{OPEN} ORDER BY e.place"
)
# In a file, this condition, or this statement: the entries themselves are read at once.
NEXT_OPEN_IN_FILE: Final = (
    f"e.lane = {ONLY_LANE} AND e.place > $1 AND e.{OPEN} ORDER BY e.place LIMIT $2"
)
NEXT_OPEN_AND_BEHIND_IN_FILE: Final = (
    f"SELECT {ENTRY}, {_IS_BEHIND} FROM {{s}}entries AS e WHERE {NEXT_OPEN_IN_FILE}"
)

# --- the next ones of teams: ``team_turns``

_IS_READY: Final = f"{OPEN} AND {IN_LANE}"  # the condition of the index


def _teams(comparison: str) -> str:
    """Return the statement that selects the first $2 teams that have something open, from or after $1."""
    return f"""
WITH RECURSIVE found (team, many) AS (
    SELECT (SELECT min(team) FROM {{s}}entries WHERE {_IS_READY} AND team {comparison} {{arg 1 text}}), 1
    UNION ALL SELECT (SELECT min(team) FROM {{s}}entries WHERE {_IS_READY} AND team > found.team), many + 1
        FROM found WHERE team IS NOT NULL AND many < {{arg 2 bigint}}
) SELECT team FROM found WHERE team IS NOT NULL
"""


# From $1 on; and those after $1.
TEAMS_FROM: Final = _teams(">=")
TEAMS_AFTER: Final = _teams(">")
# Only the first open one of a thing: those behind it wait for it.
_IS_FIRST: Final = f"""
(thing IS NULL OR place = (
    SELECT min(o.place) FROM {{s}}entries AS o WHERE o.thing = looked.thing AND o.{OPEN}
))
"""


def _first_writes(team: str, most: str) -> str:
    """Return the query of the first *most* writes of *team* that are open, in the order of their places."""
    where = f"team = {team} AND {_IS_READY}"
    return f"""
SELECT seq, place, thing, lane FROM {{s}}entries WHERE {where} ORDER BY place LIMIT {most}
"""


# Not of all lanes, not those that are under way, and of each thing only the first: so of each team more are
# looked at than are asked for.
NEXT_OF_TEAMS: Final = f"""
SELECT e.seq FROM {{rows 1 team:text many:bigint}} CROSS JOIN LATERAL (
    SELECT seq FROM ({_first_writes("given.team", "{arg 4 bigint}")}) AS looked
    WHERE lane {{any 2 bigint}} AND (seq {{any 3 bigint}}) IS NOT TRUE AND {_IS_FIRST}
    ORDER BY place LIMIT given.many
) AS e
"""
# SQLite has no LATERAL, so it is asked for one team at a time; a file has only one lane.
NEXT_OF_TEAM_IN_FILE: Final = f"""
{{sqlite}}SELECT seq FROM ({_first_writes("$1", "$2")}) AS looked WHERE {_IS_FIRST} ORDER BY place
"""
# The condition for reading these: some may have been dropped, ended or moved meanwhile.
STILL_READY: Final = f"e.seq {{any 1 bigint}} AND {_IS_READY} ORDER BY e.place"

# --- putting: a write is about to be sent, was not sent, or has ended: ``puts``

# Unkeyed, in each kind of store.  The entry enters as being sent, in no order (place 0), and with no digest,
# because its key is made up.  One that is there is updated, unless another process has taken it over: then it
# is in another lane.  One that has a verdict is still open, and is updated, too: the process that has the
# lane may resume its write (``journal.sending``) before the entry is deleted.  A person's finding is in
# another lane, or in that of the process that stored it, which puts more there only if it sends the write
# again.
# ``claim`` and ``flags`` are not stored: they are asked for in batches, outboxes and under keys of users.
_MINE: Final = """
WITH durable AS MATERIALIZED (SELECT {durably} AS done),
mine AS MATERIALIZED (SELECT id, owner FROM {s}lanes WHERE id {any 2 bigint} ORDER BY id {share})
"""
_INSERT_UNKEYED: Final = f"""
INSERT INTO {{s}}entries AS e
    (place, key, lane, digest, operation, thing, state, common, intent, verdict, outcome, done_at)
SELECT 0, given.key, given.lane, '', given.operation, given.thing, given.state, given.common, given.intent,
    given.verdict, given.outcome, given.done_at
FROM durable CROSS JOIN {{rows 1 key:text lane:bigint token:text operation:text thing:text {CHANGING}}}
    JOIN mine ON mine.id = given.lane AND mine.owner = given.token WHERE true
ON CONFLICT (key) DO UPDATE SET state = excluded.state, common = excluded.common, intent = excluded.intent,
    verdict = excluded.verdict, outcome = excluded.outcome, done_at = excluded.done_at
    WHERE e.lane = excluded.lane
"""
PUT_UNKEYED: Final = f"{_MINE} {_INSERT_UNKEYED} RETURNING key"

# Keys of users may write to the same thing.  In one process, they wait for such a write, and it for them
# (``durable/key_starts``); in others they do not.  But what was claimed before it is not to be sent after it
# (``_IS_OVERTAKEN`` in ``key_sql``).  While it is being sent, its entry says so, by its number.  Once it may
# have had an effect, that number is the place in ``states``.
#
# In PostgreSQL, a thing has a row there as soon as a key of it is claimed; in a file only once one has ended.
# So in a file a row is made, if the journal has keys at all.
STATE_NOT_KNOWN: Final = """
ON CONFLICT (thing) DO UPDATE SET
    place = CASE WHEN s.place > excluded.place THEN s.place ELSE excluded.place END,
    team = NULL, state = NULL, stamp = NULL, newest = NULL
"""
PUT_UNKEYED_AND_NOTE: Final = f"""
{_MINE}, put AS ({_INSERT_UNKEYED} RETURNING e.seq, e.key),
noted AS (
    INSERT INTO {{s}}states AS s (thing, place)
    SELECT given.thing, max(put.seq) FROM put JOIN {{rows 3 key:text thing:text}} USING (key)
    WHERE EXISTS (SELECT 1 FROM {{s}}states AS known WHERE known.thing = given.thing)
    GROUP BY given.thing ORDER BY given.thing {STATE_NOT_KNOWN}
)
SELECT key FROM put
"""
NOTE_CHANGED_IN_FILE: Final = f"""
INSERT INTO {{s}}states AS s (thing, place)
SELECT given.thing, max(e.seq) FROM {{rows 1 key:text thing:text}} JOIN {{s}}entries AS e ON e.key = given.key
WHERE EXISTS (SELECT 1 FROM {{s}}entries WHERE {KEYED}) GROUP BY given.thing {STATE_NOT_KNOWN}
"""

# By number, in PostgreSQL: one statement for a group.
#
#     durable makes the commit wait for the disk
#     mine    the lanes, locked until the commit; an entry is stored if its lane still has the token
#     stored  the entries that are stored.  A send changes no column of an index.  The key is compared,
#             because in a database that was put back from a copy, a number may be another key's.  An entry
#             that has an end is stored only if it is this one: an earlier try has stored it, and its reply
#             was lost.  b is the entry as it was before, e as it is under its lock: if their states differ,
#             somebody changes it just now, and it is not stored
#     to_tell who gives the verdict of each that gets one now.  An end that an earlier try has stored is not
#             noted again: it may be acknowledged by now.  ``{told}`` leaves out those of a client's journal
#     counted only in a store that keeps counts
#     kept    only if writes left something of their things

# Processes compare the times of verdicts, so a verdict gets the time of the database, not that of a process.
# If the service's answers show that the database's clock is behind, it gets the given time, which is later
# (``durable/done_at.py``).
_DONE_AT: Final = (
    "done_at = CASE WHEN given.done_at IS NOT NULL"
    " THEN coalesce(e.done_at, greatest(given.done_at, CAST({ms} AS bigint))) END"
)
_SET_VALUES: Final = ", ".join(
    _DONE_AT if name == "done_at" else f"{name} = given.{name}"
    for name in CHANGING_NAMES
)
# If an earlier try may have stored this end, and the entry is TO DO now, somebody may have reopened it since,
# which must not be undone.
#
# The end of a write that was never sent finds TO DO as well, although no try has stored it.  It is refused,
# too.  Its process then reads the entry again, and decides again, which is safe since nothing was sent.
_NOT_REOPENED: Final = (
    f" AND (e.state <> {State.TO_DO:d} OR given.state <> {State.DONE:d})"
)
# What the entries were before, b, tells what to count, and which ends are new.
_WHAT_TO_COUNT: Final = """, e.state AS state, coalesce(e.verdict, '') AS verdict, e.flags AS flags,
    b.state AS state_before, coalesce(b.verdict, '') AS verdict_before, b.flags AS flags_before"""


def _stored(*, counted: bool, is_again: bool) -> str:
    """Return the part of the statement that stores entries; *is_again*: an earlier try may have done so."""
    what_to_count = _WHAT_TO_COUNT if counted else ""
    not_reopened = _NOT_REOPENED if is_again else ""
    return f"""
WITH durable AS MATERIALIZED (SELECT {{durably}} AS done),
mine AS MATERIALIZED (SELECT id, owner FROM {{s}}lanes WHERE id {{any 2 bigint}} ORDER BY id {{share}}),
stored AS (
    UPDATE {{s}}entries AS e SET {_SET_VALUES}
    FROM durable CROSS JOIN {{rows 1 seq:bigint key:text lane:bigint token:text taker:text {CHANGING}}}
        JOIN mine ON mine.id = given.lane AND mine.owner = given.token
        JOIN {{s}}entries AS b ON b.seq = given.seq
    WHERE e.seq = given.seq AND e.key = given.key AND e.lane = given.lane AND b.state = e.state
        AND ((e.{OPEN}{not_reopened}) OR (e.verdict = given.verdict AND e.outcome = given.outcome))
    RETURNING e.seq, e.place, e.done_at, given.taker, b.{OPEN} AS was_open {what_to_count}
), to_tell AS (
    INSERT INTO {{s}}unheard (seq, taker) SELECT seq, taker FROM stored
        WHERE was_open AND done_at IS NOT NULL {{told}} ON CONFLICT DO NOTHING
)
"""


# What was counted of the entries before, and what is counted of them now.
_COUNTED: Final = """
, counted AS (
    INSERT INTO {s}counts AS c (part, state, verdict, flags, many)
    SELECT {part}, state, verdict, flags, sum(one) FROM (
        SELECT state, verdict, flags, 1 AS one FROM stored
        UNION ALL SELECT state_before, verdict_before, flags_before, -1 FROM stored
    ) AS changed GROUP BY state, verdict, flags HAVING sum(one) <> 0 ORDER BY state, verdict, flags
    ON CONFLICT (part, state, verdict, flags) DO UPDATE SET many = c.many + excluded.many
)
"""
# The place says who is overtaken, so it does not fall.  The state is what the write left that ended last,
# even if its place is lower.  An end that an earlier try has stored leaves nothing again: since then, another
# process may have stored what a later write left.
#
# Two writes to one thing are not stored together, but if they were, the statement would fail for all entries:
# hence DISTINCT.
_NOTED_STATES: Final = """
, kept AS (
    INSERT INTO {s}states AS s (thing, place, team, state, stamp)
    SELECT DISTINCT ON (given.thing) given.thing, place, given.team, given.state, given.stamp
    FROM {rows 3 seq:bigint thing:text team:text state:text stamp:bigint} JOIN stored USING (seq)
    WHERE was_open ORDER BY given.thing, place DESC
    ON CONFLICT (thing) DO UPDATE SET place = greatest(s.place, excluded.place), team = excluded.team,
        state = excluded.state, stamp = excluded.stamp
)
"""


def _put(*, counted: bool, has_lefts: bool, is_again: bool) -> str:
    """Return the whole statement."""
    stored = _stored(counted=counted, is_again=is_again)
    more = f"{_COUNTED if counted else ''}{_NOTED_STATES if has_lefts else ''}"
    return f"{stored}{more} SELECT seq, done_at FROM stored"


# By whether the store counts, whether writes left something, and whether an earlier try may have stored ends.
PUT_IN_DATABASE: Final = {
    (counted, has_lefts, is_again): _put(
        counted=counted,
        has_lefts=has_lefts,
        is_again=is_again,
    )
    for counted, has_lefts, is_again in product((False, True), repeat=3)
}

# By number, in a file.  Triggers do what follows from an end (``schema_sql``), but for what writes leave.

# Before the entries are updated: an end that is there leaves nothing again.
NOTE_LEFT_IN_FILE: Final = f"""
INSERT INTO {{s}}states AS s (thing, place, team, state, stamp)
SELECT given.thing, e.place, given.team, given.state, given.stamp
FROM {{rows 1 seq:bigint thing:text team:text state:text stamp:bigint}}
    JOIN {{s}}entries AS e ON e.seq = given.seq
WHERE e.{OPEN} ON CONFLICT (thing) DO UPDATE SET place = max(s.place, excluded.place), team = excluded.team,
    state = excluded.state, stamp = excluded.stamp
"""
# An entry that is not open stays as it is.
PUT_IN_FILE: Final = f"""
UPDATE {{s}}entries AS e SET {SET_CHANGING} FROM {{rows 1 seq:bigint {CHANGING}}}
    WHERE e.seq = given.seq AND e.{OPEN} {{changed}}
"""
# Which were stored, if some were not.
STATES_OF_NUMBERS: Final = "SELECT seq, state FROM {s}entries WHERE seq {any 1 bigint}"

# --- verdicts that nobody has acknowledged: ``unheard``

# The verdicts that the taker $3 may give: its own, and what no living process has.
LOCK_VERDICTS_TO_GIVE: Final = f"""
SELECT u.seq, u.taker FROM {{s}}unheard AS u WHERE u.taker IS NULL OR u.taker = $3 OR {dead("u.taker")}
    ORDER BY u.seq LIMIT {{arg 2 bigint}} {{skip}}
"""
# Under the lock of the statement before.
GIVE_VERDICTS: Final = "UPDATE {s}unheard SET taker = $1 WHERE seq {any 2 bigint}"
# The condition for reading their entries: not one that was reopened in between, since it has no verdict.
STILL_DONE: Final = (
    f"e.seq {{any 1 bigint}} AND e.state = {State.DONE:d} ORDER BY e.seq"
)
# Those that the taker still has.  It waits for those who are about to take them.
LOCK_KEPT_VERDICTS: Final = (
    "SELECT seq FROM {s}unheard WHERE seq {any 1 bigint} AND taker = $2 {share}"
)
# Only those that a token of the process $2 has.
RELEASE_VERDICTS: Final = """
UPDATE {s}unheard SET taker = NULL WHERE seq {any 1 bigint} AND taker LIKE {arg 2 text} || '.%'
"""
# Only those that the taker still has.  By their times: an entry may have another verdict by now, which
# the same taker still has to give.
ACKNOWLEDGE: Final = """
DELETE FROM {s}unheard WHERE taker = $2 AND seq IN (
    SELECT e.seq FROM {rows 1 number:bigint at:bigint} JOIN {s}entries AS e ON e.seq = given.number
    WHERE e.done_at = given.at
)
"""
# Of entries that were reopened, deleted or given another verdict by a person; or of a secret that was
# returned.
DELETE_UNHEARD: Final = "DELETE FROM {s}unheard WHERE seq {any 1 bigint}"
# Only if the entry still has the outcome $4.
NOTE_SECRET_LOST: Final = """
UPDATE {s}entries SET outcome = $2, flags = {arg 3 smallint} WHERE seq = $1 AND outcome = $4 RETURNING seq
"""
# Errors of ``on_result``, older than a time (``FAILED_TO_TELL``).
DELETE_OLD_ERRORS: Final = (
    f"DELETE FROM {{s}}facts WHERE name LIKE '{FAILED_TO_TELL}%'"
    f" AND substr(name, {len(FAILED_TO_TELL) + 1}, {DIGITS_OF_TIME}) < $1"
)


def _count_up_to_limit(rows: str) -> str:
    """Return the statement that counts *rows*, a table and perhaps a condition, up to $1."""
    return f"SELECT count(*) FROM (SELECT 1 FROM {{s}}{rows} LIMIT {{arg 1 bigint}}) AS chosen"


COUNT_UNHEARD: Final = _count_up_to_limit("unheard")
# In a client's journal ``unheard`` only says who returns a secret.
COUNT_DONE_AND_OPEN: Final = _count_up_to_limit(f"entries WHERE {DONE_AND_OPEN}")

# --- reopening, because people ask for it: ``reopening``

# The lock waits for an earlier run that the server has not ended yet.
LOCK_DONE_AT: Final = (
    "SELECT seq, done_at FROM {s}entries WHERE seq {any 1 bigint} ORDER BY seq {update}"
)
# Those at the end of the order get new places in the order of these.
PLACES_OF_KEYS: Final = "SELECT place, key FROM {s}entries WHERE key {any 1 text}"
# Entries that are done with one of the verdicts, and were not emptied; they stay so until the commit.
LOCK_REOPENABLE: Final = f"""
SELECT e.seq, e.key, e.lane, e.done_at, e.verdict, e.intent, e.flags, e.place FROM {{s}}entries AS e
    WHERE e.key {{any 1 text}} AND e.verdict {{any 2 text}} AND e.state = {State.DONE:d}
    AND e.{NOT_APPLIED} AND e.intent IS NOT NULL ORDER BY e.seq {{update}}
"""
# Under the lock of the statement before.  Without a given place, each keeps its own.  One that is aside,
# where a person has found its verdict, comes back as by ``MAKE_DUE``: what it waited for may be gone.
REOPEN_CHOSEN: Final = f"""
UPDATE {{s}}entries AS e SET state = {State.TO_DO:d}, verdict = NULL, outcome = NULL, done_at = NULL,
    flags = 0, intent = given.intent, place = coalesce(given.place, e.place),
    due_at = CASE WHEN e.{ASIDE} THEN coalesce(e.not_before, 0) ELSE e.due_at END
    FROM {{rows 1 seq:bigint intent:text place:bigint}} WHERE e.seq = given.seq
"""
# Only entries of the user's own keys: nothing runs another one again.
LOCK_KEYED: Final = f"""
SELECT key, verdict FROM {{s}}entries WHERE key {{any 1 text}} AND {KEYED} ORDER BY seq {{update}}
"""
# The next claim of a key of the thing must not count as next (``key_sql.CLAIM``).
FORGET_NEWEST: Final = """
UPDATE {s}states SET newest = NULL WHERE thing IN (SELECT thing FROM {s}entries WHERE key {any 1 text})
"""
# For the next run of each key.  Those that were UNKNOWN become SENDING, so that they are settled first.
FREE_REOPENED: Final = f"""
UPDATE {{s}}entries SET lane = {FREED}, state = $2 WHERE key {{any 1 text}} AND state = {State.TO_DO:d}
"""

# --- deleting: ``deleting``

# The entry stays as it is until the commit: a process that is about to send it waits, and then finds it gone.
LOCK_OF_KEY: Final = (
    f"SELECT {ENTRY} FROM {{s}}entries AS e WHERE e.key = $1 {{update}}"
)
# Under that lock.
DROP: Final = "DELETE FROM {s}entries WHERE seq = $1"
# Entries that were done before $1 (epoch ms), but not UNKNOWN ones, nor emptied ones.  Unless $2 is 1, only
# those whose verdicts were acknowledged; in the journal of a client, those whose secrets were returned.
_OLD: Final = f"""
e.state = {State.DONE:d} AND e.done_at < $1 AND e.verdict <> '{Verdict.UNKNOWN}'
    AND (e.intent IS NOT NULL OR e.outcome IS NOT NULL)
    AND ({{arg 2 smallint}} = 1 OR NOT EXISTS (SELECT 1 FROM {{s}}unheard AS u WHERE u.seq = e.seq))
"""
# Without a lock; the next statements check each entry again.
FIND_OLD: Final = f"SELECT e.seq, e.key FROM {{s}}entries AS e WHERE {_OLD} AND e.seq > $3 AND e.seq <= $4"
# Those of the entries $3 for which that is still so.
_STILL_OLD: Final = (
    f"WHERE {_OLD} AND e.seq {{any 3 bigint}} RETURNING seq, thing, place"
)
# Deletes them.
PRUNE: Final = f"DELETE FROM {{s}}entries AS e {_STILL_OLD}"
_NOTHING_NOTED: Final = ", ".join(f"{name} = NULL" for name in NOTED_NAMES)
# Keeps key, digest and verdict, so that a resumed batch knows the write.
EMPTY: Final = f"""
UPDATE {{s}}entries AS e SET intent = NULL, outcome = NULL, claim = NULL, {_NOTHING_NOTED} {_STILL_OLD}
"""
# What a deleted write left of its thing goes, too.  The place stays: it says who is overtaken.
FORGET_LEFT: Final = """
UPDATE {s}states AS s SET team = NULL, state = NULL, stamp = NULL
    FROM {rows 1 thing:text place:bigint} WHERE s.thing = given.thing AND s.place = given.place
"""
# The locks wait for an earlier run that the server has not ended yet.
LOCK_NUMBER: Final = "SELECT 1 FROM {s}entries WHERE seq = $1 {update}"
LOCK_NOT_PRUNED: Final = """
SELECT seq FROM {s}entries WHERE seq {any 1 bigint} AND (intent IS NOT NULL OR outcome IS NOT NULL)
    ORDER BY seq {update}
"""

# --- entries of a client's writes without keys: ``unkeyed_removal``

# Conditions, by which they are read.
UNFINISHED_OF_KEYS: Final = f"e.key {{any 1 text}} AND e.{UNFINISHED} ORDER BY e.seq"
DONE_OF_KEYS: Final = (
    f"e.key {{any 1 text}} AND e.state = {State.DONE:d} ORDER BY e.seq"
)
# Not an entry that another process has taken over by now.
REMOVE: Final = "DELETE FROM {s}entries WHERE key {any 1 text} AND lane {any 2 bigint}"
# The same, when the event loop is closed.
REMOVE_KEY_IN_FILE: Final = "DELETE FROM entries WHERE key = ?"

# --- lists and counts, as people see them: ``lists``

# The conditions of entries in a state.  Of the verdicts that nobody has acknowledged, only as many are looked
# at as entries are asked for: $1, the limit of the whole statement.
_IN_STATE: Final[dict[str | None, str]] = {
    None: "true",
    "open": f"e.{OPEN} AND e.{UNFINISHED}",
    "applied": "e.verdict = 'applied'",
    "untold": "e.seq IN (SELECT seq FROM {s}unheard ORDER BY seq LIMIT $1)",
}
# Among all of those, when more than that is asked: the first ones may lack what is wanted.
AMONG_ALL_UNTOLD: Final = "e.seq IN (SELECT seq FROM {s}unheard)"
# The same in the journal of a client.
UNTOLD_IN_JOURNAL: Final = f"e.{DONE_AND_OPEN}"


def in_state(state: str | None) -> str:
    """Return the condition of entries in *state*, or with that verdict."""
    return (
        _IN_STATE.get(state)
        or f"e.verdict = '{Verdict(str(state))}' AND e.{NOT_APPLIED}"
    )


def first_of(condition: str) -> str:
    """Return the condition that selects the first $1 of the entries with *condition*."""
    return f"{condition} ORDER BY e.seq LIMIT {{arg 1 bigint}}"


def count_of(condition: str) -> str:
    """Return the statement that counts entries with *condition*, up to $1, and tells how old they are."""
    return f"""
SELECT count(*), min(added_at) FROM (
    SELECT e.added_at FROM {{s}}entries AS e WHERE {condition} LIMIT {{arg 1 bigint}}
) AS chosen
"""


# A condition: the first unfinished entries of all lanes.
FIRST_UNFINISHED: Final = f"e.{OPEN} AND e.{UNFINISHED} ORDER BY e.seq LIMIT $1"
# Since when the first of the entries could be sent, but for those that wait for their time, or behind such
# ones.
READY_SINCE: Final = f"""
SELECT min(since) FROM (
    SELECT CASE WHEN e.due_at > e.added_at THEN e.due_at ELSE e.added_at END AS since
    FROM {{s}}entries AS e WHERE {_IN_STATE["open"]} AND e.{NOT_ASIDE} LIMIT {{arg 1 bigint}}
) AS chosen
"""


def done_after(verdict: str | None) -> str:
    """Return the condition that selects the next $2 entries after $1, done with *verdict*, or with any."""
    return f"{in_state(verdict)} AND e.state = {State.DONE:d} AND e.seq > $1 ORDER BY e.seq LIMIT $2"


def latest_of(verdict: str) -> str:
    """Return the condition that selects the last $1 entries with *verdict*, the last one first."""
    return f"{in_state(verdict)} ORDER BY e.seq DESC LIMIT $1"


# Without emptied ones, which cannot be reopened.
NUMBERS_OF_VERDICT: Final = f"""
SELECT seq, key FROM {{s}}entries WHERE verdict = $1 AND {NOT_APPLIED} AND intent IS NOT NULL
    AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4
"""
_NEXT_PART: Final = "SELECT seq FROM {s}entries WHERE seq > $1 ORDER BY seq LIMIT $2"
# The number of the last of the next $2 entries after $1.
END_OF_PART: Final = f"SELECT max(seq) FROM ({_NEXT_PART}) AS part"
# 0 if there is no entry.
LAST_NUMBER: Final = "SELECT coalesce(max(seq), 0) FROM {s}entries"


def _counts(flags: str) -> str:
    """Return the statement that counts entries, of which *flags* are in a column or in the outcome's text."""
    return f"""
SELECT state, coalesce(verdict, ''), {flags}, count(*) FROM {{s}}entries AS e GROUP BY 1, 2, 3
"""


# In a store that keeps no counts, of this version of the tables, or of the first one.
COUNT_ENTRIES: Final = _counts("e.flags")
COUNT_ENTRIES_BY_TEXT: Final = _counts(FLAGS_IN_TEXT)
# In a batch.  All processes together have added them (``ADD_TO_COUNTS``).
KEPT_COUNTS: Final = """
SELECT state, verdict, flags, CAST(sum(many) AS bigint) FROM {s}counts GROUP BY state, verdict, flags
"""
KEPT_COUNT_OF_UNFINISHED: Final = (
    f"SELECT coalesce(sum(many), 0) FROM {{s}}counts WHERE {UNFINISHED}"
)
# Whether one of some operations is open.
HAS_OPEN_OF_OPERATIONS: Final = f"""
SELECT 1 FROM {{s}}entries WHERE {OPEN} AND operation {{any 1 text}} LIMIT 1
"""
# A condition: entries that people call $1.  That is the whole key, or a part of it, of one of two forms:
#
# - a namespace without spaces, a space, and the user's key: it ends with a space and $1, and has exactly one
#   space more than $1
# - a made-up key, a space, and a nonce.  It begins with $1 and a space
NAMED: Final = f"""
e.key = {{arg 1 text}}
    OR e.{KEYED} AND substr(e.key, length(e.key) - length({{arg 1 text}})) = ' ' || {{arg 1 text}}
        AND length(replace(e.key, ' ', '')) = length(e.key) - 1 - length({{arg 1 text}})
            + length(replace({{arg 1 text}}, ' ', ''))
    OR e.{UNKEYED} AND substr(e.key, 1, length({{arg 1 text}}) + 1) = {{arg 1 text}} || ' '
ORDER BY e.seq LIMIT 10
"""


def notes(*, not_before: str, noted: str) -> str:
    """
    Return the statement that selects what people see of entries besides their progress.

    *not_before* and *noted* are columns of *e*, or NULL in tables of a version that lacks them.
    """
    return f"""
SELECT e.seq, e.added_at, u.seq, {not_before}, {noted}
    FROM {{s}}entries AS e LEFT JOIN {{s}}unheard AS u ON u.seq = e.seq WHERE e.seq {{any 1 bigint}}
"""
