"""
Statements about a whole store, and about the processes that use it.

In the order in which a process needs them: where the store is; its facts; opening it; whether it is an older
copy; signs of life; lanes, from being acquired to being released; inputs; notifications.  How to read them is
told at the top of ``statements``.
"""

from __future__ import annotations

from typing import Final

from invsvc_async.durable.store.conditions import KEYED, OPEN, UNKEYED
from invsvc_async.durable.store.fact_names import INPUT, MARK

# --- where a store is: ``opening``, ``schemas``

# Of which kind a file is: an application's file has a table that no store has.
TABLES_IN_FILE: Final = "SELECT name FROM sqlite_master WHERE type = 'table'"
KIND_OF_FILE: Final = "SELECT value FROM facts WHERE name = 'kind'"
# No row: the file is empty, and may become a store.
HAS_TABLES_IN_FILE: Final = "SELECT 1 FROM sqlite_master"
# Whether a schema has a store that the role may read: asked of its table ``facts``.
HAS_TABLE: Final = "SELECT to_regclass(CAST($1 AS text)) IS NOT NULL"
# The schemas whose names begin with $1, and whether each is hidden from the role.
SCHEMAS_CALLED: Final = """
SELECT nspname, NOT has_schema_privilege(oid, 'USAGE') AS is_hidden FROM pg_namespace
    WHERE starts_with(nspname, CAST($1 AS text)) ORDER BY nspname
"""
# Of one base URL, each credential may have a store of its own; with ``same_mode`` it continues another's.
# The facts ``credential …`` name all that have opened an outbox.
OWNERS_OF_SCHEMA: Final = """
SELECT name, value FROM {schema}.facts WHERE name = 'base_url' OR starts_with(name, 'credential ')
"""
# Only a schema that has no base URL yet gets the given one: the result has a row then.
ADOPT_SCHEMA: Final = """
INSERT INTO {schema}.facts (name, value) VALUES ('base_url', $1) ON CONFLICT DO NOTHING RETURNING name
"""
# A credential that has opened the store; one that is known stays.
NOTE_CREDENTIAL: Final = (
    "INSERT INTO {schema}.facts (name, value) VALUES ($1, '') ON CONFLICT DO NOTHING"
)
# What an error tells people to run, with the name of a schema: from then on, it is of the credential, too.
CONTINUE_BY_HAND: Final = (
    "INSERT INTO SCHEMA.facts (name, value) VALUES ('credential {mine}', '')"
)

# --- facts: ``facts``

# A fact that is there is replaced.
SET_FACT: Final = """
INSERT INTO {s}facts (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
# ``TAKER``, which a trigger reads (``schema_sql``).  In PostgreSQL, ``PUT_IN_DATABASE`` gets it with each
# entry.
SET_FACT_OF_FILE: Final = f"{{sqlite}}{SET_FACT}"
# A fact that is there stays.
SET_NEW_FACT: Final = (
    "INSERT INTO {s}facts (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING"
)
# The same, and selects a row if it was not there.
NOTE_ONCE: Final = f"{SET_NEW_FACT} RETURNING name"
GET_FACT: Final = "SELECT value FROM {s}facts WHERE name = $1"
# The fact stays as it is until the commit.
LOCK_FACT: Final = "SELECT value FROM {s}facts WHERE name = $1 {update}"
# Of names; and of names that begin with $1.
FACTS_CALLED: Final = "SELECT name, value FROM {s}facts WHERE name {any 1 text}"
FACTS_BEGINNING_WITH: Final = (
    "SELECT name, value FROM {s}facts WHERE name LIKE {arg 1 text} || '%'"
)
DELETE_FACT: Final = "DELETE FROM {s}facts WHERE name = $1"
# By a pattern of ``LIKE``.
DELETE_FACTS_LIKE: Final = "DELETE FROM {s}facts WHERE name LIKE $1"
# The clock of the store, in seconds; and in milliseconds, as ``done_at`` has it.
NOW: Final = "SELECT {now}"
NOW_MS: Final = "SELECT {ms}"
# The commit of the transaction waits for the disk.  A session of the package always does, but a pooler may
# give the transaction another session.  Said where a send, or what must not be sent, would be lost in a
# crash.
COMMIT_DURABLY: Final = "SELECT {durably}"

# --- versions of the tables, and opening: ``tables``, ``sqlite``

# Which version of the tables it is, and whether it is a batch, an outbox or a journal of a client.
VERSION_AND_KIND: Final = (
    "SELECT name, value FROM {s}facts WHERE name IN ('schema', 'kind')"
)
# The version, locked before a process gets a lane: an upgrade waits for that commit.
LOCK_VERSION: Final = (
    "{postgres} SELECT value FROM {s}facts WHERE name = 'schema' {share}"
)
# Of a new store.
INSERT_FACTS: Final = (
    "INSERT INTO {s}facts (name, value) SELECT * FROM {rows 1 name:text value:text}"
)


def insert_free_lanes(many: int) -> str:
    """Return the statement that inserts *many* lanes that nobody owns: without values, to be printed."""
    return f"INSERT INTO {{s}}lanes (owner) VALUES {', '.join(['(NULL)'] * many)}"


# A batch or an outbox has as many as it was made with: an entry in one that is gone would never be sent.
COUNT_LANES: Final = "SELECT count(*) FROM {s}lanes"
# The token of a process that never lived, so that the next take-over takes a lane which nobody has released.
# It is not NULL, because a lane without a token counts as released.
_DEAD_TOKEN: Final = "'nobody.0'"
# At an upgrade.  The lanes belong to a process that does not live: they were not released.
DISOWN_LANES: Final = (
    f"UPDATE {{s}}lanes SET owner = {_DEAD_TOKEN} WHERE owner IS NOT NULL"
)


def note_version(version: int) -> str:
    """Return the statement that notes the *version* of the tables: without values, to be printed."""
    return f"UPDATE {{s}}facts SET value = '{version}' WHERE name = 'schema'"


# The lock of the file shows that whoever had it before is dead, and so done with all lanes.
FREE_ALL_LANES_OF_FILE: Final = "UPDATE lanes SET owner = NULL"
# Nor does anybody live who gave signs of life.
DELETE_MEMBERS_OF_FILE: Final = "DELETE FROM members"
# That a file is open: the start of the machine, the device and the inode with which it was opened
# (``opened_as``).  A file without this fact was closed.
NOTE_OPENED: Final = "INSERT OR REPLACE INTO facts VALUES ('open', ?)"
NOTE_CLOSED: Final = "DELETE FROM facts WHERE name = 'open'"

# --- older copies: ``restored``, ``postgres``

# Selects a row while the mark is open: ``Mark`` of ``restored``, as ``msgspec`` encodes it.
MARK_IS_OPEN: Final = f"""SELECT 1 FROM {{s}}facts WHERE name = '{MARK}' AND value LIKE '%"is_open":true%'"""
# A time at which the copy was up to date: any will do, so the latest of all is not looked for.  A person may
# have stored a finding in the copy (``person`` of ``VerdictRecord``).
LATEST_END: Final = """
SELECT max(done_at) FROM (SELECT done_at, outcome FROM {s}entries ORDER BY seq DESC LIMIT 10000) AS latest
    WHERE outcome IS NULL OR outcome NOT LIKE '%"person":%'
"""
# Where the tables are.  The timeline is NULL on a standby, and while the server recovers.
PLACE: Final = """
SELECT CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END AS timeline,
    to_regclass('{s}entries')::oid::text AS entries,
    (SELECT oid::text FROM pg_database WHERE datname = current_database()) AS database
"""
SYSTEM: Final = "SELECT system_identifier::text FROM pg_control_system()"
# A role may be forbidden to ask for the identity of the cluster.
MAY_ASK_SYSTEM: Final = (
    "SELECT has_function_privilege('pg_control_system()', 'EXECUTE')"
)
# The place before, which stays as it is noted until the commit.
LOCK_NOTED_PLACE: Final = (
    "SELECT name, value FROM {s}facts WHERE name LIKE 'place %' {update}"
)
# As the fact $1, the number of the last entry now; a fact that is there stays.
NOTE_LAST_NUMBER: Final = """
INSERT INTO {s}facts (name, value) SELECT {arg 1 text}, CAST(coalesce(max(seq), 0) AS text) FROM {s}entries
    WHERE true ON CONFLICT DO NOTHING
"""
# Of a file: its identity, and how many sends it has counted, which triggers do (``schema_sql``).
EPOCH_AND_SENDS: Final = (
    "SELECT name, value FROM facts WHERE name IN ('epoch', 'sends')"
)
# Facts of a file, in a transaction of its connection.
SET_FACT_IN_FILE: Final = "INSERT OR REPLACE INTO facts VALUES (?, ?)"
GET_FACT_IN_FILE: Final = "SELECT value FROM facts WHERE name = ?"

# --- signs of life: ``members``

# Whether a row of ``members`` is of a living process.  ``sends`` is -1 once a process has ended.  $1 is the
# silence of the process that asks; the process itself may have another one in its address.  Of both silences
# the longer one counts, so a process that is configured for long silences is not taken for dead by one that
# is configured for short ones.
_LIVES: Final = """sends >= 0
    AND seen > {now} - CASE WHEN silence > {arg 1 float8} THEN silence ELSE {arg 1 float8} END"""


def dead(owner: str) -> str:
    """
    Return the condition that the process of a token in the column *owner* counts as dead.

    In each statement that has one of these conditions, $1 is the silence of the store (s).
    """
    return f"NOT EXISTS (SELECT 1 FROM {{s}}members WHERE {owner} LIKE name || '.%' AND {_LIVES})"


def dead_member(name: str) -> str:
    """Return the condition that the process called *name*, a column or an expression, counts as dead."""
    return dead(f"({name} || '.')")


def has_no_living_owner(owner: str) -> str:
    """Return the condition that no living process has what the token in the column *owner* has."""
    return f"{owner} IS NULL OR {dead(owner)}"


def has_living_owner(owner: str) -> str:
    """Return the condition that a living process has it: the contrary of ``has_no_living_owner``."""
    return f"{owner} IS NOT NULL AND NOT ({dead(owner)})"


# Those of the processes $2 that live.
LIVING_OF_NAMES: Final = (
    f"SELECT name FROM {{s}}members WHERE name {{any 2 text}} AND {_LIVES}"
)
# A process lives: its name, and its silence.
SIGN_OF_LIFE: Final = """
INSERT INTO {s}members (name, seen, begun, silence, sends)
    VALUES ({arg 1 text}, {now}, {now}, {arg 2 float8}, 0)
    ON CONFLICT (name) DO UPDATE SET seen = excluded.seen
"""
# The same, and what the process does; a status that is there stays unless there is a new one.
SIGN_OF_LIFE_WITH_STATUS: Final = """
INSERT INTO {s}members (name, seen, begun, silence, sends, hungry, status)
    VALUES ({arg 1 text}, {now}, {now}, {arg 2 float8}, {arg 3 smallint}, {arg 4 smallint}, {arg 5 text})
    ON CONFLICT (name) DO UPDATE SET seen = excluded.seen, sends = excluded.sends, hungry = excluded.hungry,
        status = coalesce(excluded.status, members.status)
"""
# Those of the tokens $1 that still own lanes: the others were taken over.
OWNED_TOKENS: Final = "SELECT owner FROM {s}lanes WHERE owner {any 1 text}"
# How many living processes send, and how many others than $2 have nothing to send.
COUNT_SENDING: Final = f"""
SELECT count(*), count(CASE WHEN hungry = 1 AND name <> {{arg 2 text}} THEN 1 END) FROM {{s}}members
    WHERE sends = 1 AND {_LIVES}
"""
# Signs of life of others that are in the future: they were given before the database's clock was set back.
SIGNS_AHEAD: Final = """
SELECT name, seen, silence FROM {s}members WHERE name <> $1 AND sends >= 0 AND seen > {now}
"""
# The last sign of life of a process that has not ended.
LAST_SIGN: Final = "SELECT seen FROM {s}members WHERE name = $1 AND sends >= 0"
# Only if the sign of life is still the one given at the time $2.
MAKE_SIGN_OLDER: Final = """
UPDATE {s}members SET seen = {now} - {arg 3 float8} WHERE name = $1 AND seen = {arg 2 float8}
"""
# The living processes, for one that waits for their ends.  A sign of life in the far future does not count
# here: a process that is gone may have left it before the clock was set back.
STATUS_OF_LIVING: Final = f"""
SELECT status FROM {{s}}members WHERE {_LIVES}
    AND seen < {{now}} + CASE WHEN silence > {{arg 1 float8}} THEN silence ELSE {{arg 1 float8}} END
    ORDER BY begun
"""
# As people see them, also those that have ended.
MEMBERS_WITH_STATUS: Final = """
SELECT status, begun, seen, {now} - seen, sends FROM {s}members WHERE status IS NOT NULL ORDER BY begun, name
"""
# A process that has ended counts as dead at once.
END_MEMBER: Final = """
UPDATE {s}members SET sends = -1, hungry = 0, seen = {now}, status = coalesce({arg 2 text}, status)
    WHERE name = {arg 1 text}
"""
DELETE_MEMBER: Final = "DELETE FROM {s}members WHERE name = $1"
# People see the status of a process that has ended, if it ever gave one.
DELETE_MEMBER_WITHOUT_STATUS: Final = f"{DELETE_MEMBER} AND status IS NULL"
# Members that have been silent, or have ended, for over a day.  A member that lanes still name is dead, too,
# but is kept, so that people see whose those lanes are (``owner_of`` in ``lanes``).
DELETE_LONG_DEAD: Final = """
DELETE FROM {s}members WHERE seen < {now} - 86400 - {arg 1 float8}
    AND NOT EXISTS (SELECT 1 FROM {s}lanes l WHERE l.owner LIKE {s}members.name || '.%')
"""

# --- lanes: ``lanes``, ``due``

# Several transactions of the owner may have this lock at once.  ``LOCK_LANE`` and ``LOCK_LANES`` wait for
# them, and ``LOCK_UNOWNED_LANES`` skips the lane.
LOCK_LANE_IF_OWNED: Final = (
    "SELECT 1 FROM {s}lanes WHERE id = $1 AND owner = $2 {share}"
)
# Until the commit, nobody else takes or ends the lane.  No row: there is no such lane.
LOCK_LANE: Final = "SELECT owner FROM {s}lanes WHERE id = $1 {update}"
# Like ``LOCK_LANE_IF_OWNED``, of several lanes; the caller compares their owners.
LOCK_LANES_IN_SHARE: Final = (
    "SELECT id, owner FROM {s}lanes WHERE id {any 1 bigint} ORDER BY id {share}"
)
# Like ``LOCK_LANE``, of several lanes, in one order, so that two processes cannot deadlock.
LOCK_LANES: Final = (
    "SELECT id, owner FROM {s}lanes WHERE id {any 1 bigint} ORDER BY id {update}"
)
# The token on a lane, and what its process has told; NULL if it has told nothing.
STATUS_OF_OWNER: Final = """
SELECT l.owner, m.status, m.seen, {now} - m.seen, m.silence, m.sends FROM {s}lanes AS l
    LEFT JOIN {s}members AS m ON l.owner LIKE m.name || '.%' WHERE l.id = $1
"""
# An earlier try may have made the lane.
LANE_OF_TOKEN: Final = "SELECT id FROM {s}lanes WHERE owner = $1"
# In the journal of a client, each process has a lane of its own.
INSERT_LANE: Final = (
    "INSERT INTO {s}lanes (owner, credential) VALUES ($1, $2) RETURNING id"
)
# Beside the lane $1, of the same credential.
INSERT_LANE_OF_DEAD: Final = f"""
INSERT INTO {{s}}lanes (owner, credential)
    SELECT {_DEAD_TOKEN}, credential FROM {{s}}lanes WHERE id = $1 RETURNING id
"""
# Lanes without a living owner, of a credential: ``%`` stands for any.  Those that are locked are skipped, for
# a later try: by a process that is about to take them, or by a transaction of the silent owner.
LOCK_UNOWNED_LANES: Final = f"""
SELECT id, owner FROM {{s}}lanes AS l WHERE ({has_no_living_owner("l.owner")}) AND credential LIKE $3
    ORDER BY id LIMIT {{arg 2 bigint}} {{skip}}
"""
# What an earlier try has taken, whose reply was lost.
LOCK_LANES_OF_TRY: Final = (
    "SELECT id FROM {s}lanes WHERE owner LIKE {arg 1 text} || '%' {update}"
)
# Under the locks of these two, so that two processes do not take the same lane.
TAKE_LANES: Final = """
UPDATE {s}lanes AS l SET owner = given.token
FROM {rows 1 id:bigint token:text} WHERE l.id = given.id
"""
# When a lane or an entry of this store was last taken from a process that was only silent.  That process may
# have a request under way for ``_LONGEST_REQUEST``.  Until then no lane that is taken counts as ended
# (``has_ended`` of ``TakenLane``): its entries may be of that process, although a later owner has released
# the lane.
NOTE_SILENT: Final = """
INSERT INTO {s}facts (name, value) VALUES ('silent', CAST({now} AS text))
    ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
_LONGEST_REQUEST: Final = 3600  # s
# A row: that process may still have a request under way.
WAS_SILENT: Final = f"""
SELECT 1 FROM {{s}}facts WHERE name = 'silent' AND {{now}} < CAST(value AS float8) + {_LONGEST_REQUEST}
"""
# For how long (s) it may still send, within its lease, which is shorter than its silence: below 0, no more.
# Whose silence that was is not known, so it is the longest one.  In a file, nobody seems silent who lives.
REST_OF_SILENCE: Final = """
{postgres}SELECT CAST(value AS float8) - {now} + greatest(
    {arg 1 float8}, (SELECT max(silence) FROM {s}members WHERE sends >= 0)
) FROM {s}facts WHERE name = 'silent'
"""
# A time in the future is from before the database's clock was set back.  How long ago that is, is not known,
# so it counts as now.
SILENT_NOT_IN_FUTURE: Final = """
UPDATE {s}facts SET value = CAST({now} AS text) WHERE name = 'silent' AND CAST(value AS float8) > {now}
"""
# Under the locks of ``LOCK_LANES``.  Entries of keys go to where any run may take them, ``FREED`` or
# ``ENDED``.
MOVE_KEYED: Final = f"""
UPDATE {{s}}entries SET lane = $2
WHERE lane {{any 1 bigint}} AND {OPEN} AND {KEYED}
"""
# What is left in a lane after that.
MOVE_REST: Final = (
    f"UPDATE {{s}}entries SET lane = $2 WHERE lane {{any 1 bigint}} AND {OPEN}"
)
# No open entry is in them by then.
DELETE_LANES: Final = "DELETE FROM {s}lanes WHERE id {any 1 bigint}"
# Not those of keys: in the lane of this process, they have runs.
UNKEYED_IN_LANE: Final = f"""
SELECT key, state FROM {{s}}entries WHERE lane = $1 AND {OPEN} AND {UNKEYED} ORDER BY seq
"""
# Only those that still have one of the tokens.
RELEASE_LANES: Final = "UPDATE {s}lanes SET owner = NULL WHERE owner {any 1 text}"
# As ``LOCK_LANE_IF_OWNED``, but it waits for the other transactions of the owner.
LOCK_LANE_TO_END: Final = "SELECT 1 FROM {s}lanes WHERE id = $1 AND owner = $2 {update}"
# If there are some, the lane is released, for another process; else it is deleted.
HAS_OPEN_IN_LANE: Final = (
    f"SELECT 1 FROM {{s}}entries WHERE lane = $1 AND {OPEN} LIMIT 1"
)
FREE_LANE: Final = "UPDATE {s}lanes SET owner = NULL WHERE id = $1"
DELETE_LANE: Final = "DELETE FROM {s}lanes WHERE id = $1"

# --- inputs of batches: ``inputs``

# An input that is noted already keeps its time.
NOTE_INPUT: Final = """
INSERT INTO {s}facts (name, value) VALUES ($1, CAST({now} AS text)) ON CONFLICT (name) DO NOTHING
"""
# Those that were begun and not read to their end.
COUNT_INPUTS: Final = f"SELECT count(*) FROM {{s}}facts WHERE name LIKE '{INPUT}%'"
# Whether an input was begun before the time $2.  If its time is in the future, it was begun before the
# database's clock was set back, so before $2, unless $2 is in the future, too.
_IS_BEGUN_BEFORE: Final = """
        CAST(f.value AS float8) <= {arg 2 float8}
        OR CAST(f.value AS float8) > {now} AND {arg 2 float8} <= {now}"""
# Such inputs of processes that are gone, or silent.
INPUTS_OF_DEAD: Final = f"""
SELECT f.name FROM {{s}}facts AS f
    WHERE f.name LIKE '{INPUT}%' AND ({_IS_BEGUN_BEFORE})
    AND {dead_member(f"substr(f.name, {len(INPUT) + 1})")}
"""
# The lock waits for an earlier run that the server has not ended yet.
LOCK_INPUTS: Final = (
    "SELECT name FROM {s}facts WHERE name {any 1 text} ORDER BY name {update}"
)
DELETE_INPUTS: Final = "DELETE FROM {s}facts WHERE name {any 1 text}"
# Processes that gave no sign of life since $2, and do not count as dead yet.  A sign of life in the future
# was given before the database's clock was set back.
UNDECIDED_MEMBERS: Final = f"""
SELECT m.name FROM {{s}}members AS m
    WHERE (m.seen < {{arg 2 float8}} OR m.seen > {{now}}) AND m.sends >= 0 AND m.name <> $3
    AND NOT {dead_member("m.name")} AND (
        EXISTS (SELECT 1 FROM {{s}}unheard AS u WHERE u.taker LIKE m.name || '.%')
        OR EXISTS (SELECT 1 FROM {{s}}facts AS f WHERE f.name = '{INPUT}' || m.name)) LIMIT 1
"""

# --- what a lost connection may still change: ``postgres``

# Whether a session may still change something whose connection was lost; its name, and how many s ago.  The
# server ends what it has begun: a commit may wait for a standby, or a statement for a lock.  What has just
# begun has no transaction number yet, and a message may be still under way to an idle session: for both, it
# waits a little; what only reads may take longer.  With track_activities off, only what is waited for tells.
MAY_STILL_CHANGE: Final = """
SELECT EXISTS (
    SELECT 1 FROM pg_stat_activity JOIN unnest($1::text[], $2::float8[]) AS lost (name, age)
        ON starts_with(application_name, lost.name)
    WHERE pid <> pg_backend_pid() AND (
        backend_xid IS NOT NULL OR wait_event_type = 'Lock' OR state LIKE 'idle in transaction%'
        OR state = 'active' AND age < 5
        OR state = 'idle' AND age < 1
        OR state = 'disabled' AND (age < 1 OR wait_event_type IS DISTINCT FROM 'Client')
    )
)
"""

# --- notifications, which wake processes: ``postgres``

# Tells all that listen on the channel $1, once the transaction commits.
NOTIFY: Final = "SELECT pg_notify({arg 1 text}, given.what) FROM {rows 2 what:text}"
