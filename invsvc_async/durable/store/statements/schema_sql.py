"""
The tables of a store of writes and of an application's SQLite file, and what changes earlier ones.

``tables`` tells what each table is for, makes the tables and brings them up to date; ``durable/entry`` tells
what the columns of an entry are.  ``migrations`` gives the numbers of the versions.  Words that only stand
here: ``{serial}`` is a number that the database gives; ``{filled}`` leaves room for a second version of each
row on its page; ``{small}`` is for tables of small rows that are found by their key.

A text of a migration that was released never changes, and is not made of those that make new tables.
"""

from __future__ import annotations

from typing import Final

from invsvc_async.durable.entry import State
from invsvc_async.durable.store.conditions import ASIDE, IN_LANE, OPEN
from invsvc_async.durable.store.fact_names import TAKER
from invsvc_async.reconcile.enums import Verdict

# --- the tables of a new store: ``tables``
TABLES: Final = (
    "CREATE TABLE {s}facts (name text PRIMARY KEY, value text NOT NULL) {small}",
    "CREATE TABLE {s}commons (number bigint PRIMARY KEY, text text NOT NULL)",
    """
    CREATE TABLE {s}members (
        name text PRIMARY KEY, seen float8 NOT NULL, silence float8 NOT NULL, sends smallint NOT NULL,
        hungry smallint NOT NULL DEFAULT 0, begun float8 NOT NULL, status text
    )
    """,
    "CREATE TABLE {s}lanes (id {serial}, owner text, credential text NOT NULL DEFAULT '')",
    """
    CREATE TABLE {s}entries (
        seq {serial}, place bigint NOT NULL, key text NOT NULL UNIQUE, lane bigint NOT NULL, thing text,
        digest text NOT NULL, operation text NOT NULL, state smallint NOT NULL, common bigint, intent text,
        verdict text, outcome text, claim text, done_at bigint, added_at bigint NOT NULL DEFAULT ({ms}),
        flags smallint NOT NULL DEFAULT 0, labels text, team text NOT NULL DEFAULT '',
        not_before bigint, due_at bigint
    ) {filled}
    """,
    "CREATE TABLE {s}unheard (seq bigint PRIMARY KEY, taker text) {small}",
    """
    CREATE TABLE {s}states (
        thing text PRIMARY KEY, place bigint NOT NULL, team text, state text, stamp bigint, newest bigint,
        before bigint
    )
    """,
    f"CREATE INDEX open_in_lane ON {{s}}entries (lane, place) WHERE {OPEN}",
    f"CREATE INDEX open_of_team ON {{s}}entries (team, place) WHERE {OPEN} AND {IN_LANE}",
    f"""
    CREATE INDEX open_of_thing ON {{s}}entries (thing, place)
        WHERE {OPEN} AND thing IS NOT NULL
    """,
    f"CREATE INDEX due_in_lane ON {{s}}entries (lane, due_at, place) WHERE {OPEN} AND {ASIDE}",
    f"""
    CREATE INDEX waiting_of_thing ON {{s}}entries (thing, place)
        WHERE {OPEN} AND {ASIDE} AND thing IS NOT NULL
    """,
    "CREATE INDEX not_applied ON {s}entries (verdict, seq) WHERE verdict <> 'applied'",
    f"CREATE INDEX unknown_of_thing ON {{s}}entries (thing) WHERE verdict = '{Verdict.UNKNOWN}'",
    "CREATE INDEX claimed ON {s}entries (thing) WHERE claim IS NOT NULL",
)
# Only in a batch.
COUNTS_TABLE: Final = """
CREATE TABLE {s}counts (
    part smallint NOT NULL, state smallint NOT NULL, verdict text NOT NULL, flags smallint NOT NULL,
    many bigint NOT NULL, PRIMARY KEY (part, state, verdict, flags)
) {small}
"""

# --- triggers of a new store in a file: ``tables``
#
# In a file, what follows from a change of an entry is done by triggers: each further statement of Python
# releases the GIL several times, and getting it back from a busy event loop takes milliseconds.
# Each entry that is stored as being sent, by which an older copy is recognised (``restored``).
COUNT_SENDS: Final = tuple(
    f"""
    {{sqlite}}CREATE TRIGGER {name} AFTER {event} ON entries WHEN NEW.state = {State.SENDING:d}
        BEGIN UPDATE facts SET value = value + 1 WHERE name = 'sends'; END
    """
    for name, event in (("sent_first", "INSERT"), ("sent_again", "UPDATE OF state"))
)
# Each new verdict is one that nobody has acknowledged.  Not in the journal of a client.
NOTE_UNHEARD_BY_TRIGGER: Final = f"""
{{sqlite}}CREATE TRIGGER done AFTER UPDATE OF state ON entries
    WHEN NEW.state = {State.DONE:d} AND OLD.state <> {State.DONE:d}
    BEGIN
        INSERT INTO unheard (seq, taker) VALUES (NEW.seq, (SELECT value FROM facts WHERE name = '{TAKER}'));
    END
"""


def _counting_trigger(event: str, when: str, **changes: int) -> str:
    """
    Return a trigger that changes the counts *when* an *event* has changed an entry.

    *changes* are what to add for the row as it is after that (``NEW``), and as it was before (``OLD``).
    """
    added = "".join(
        f"""
        INSERT INTO counts (part, state, verdict, flags, many)
            VALUES (0, {row}.state, coalesce({row}.verdict, ''), {row}.flags, {many})
            ON CONFLICT (part, state, verdict, flags) DO UPDATE SET many = many + excluded.many;
        """
        for row, many in changes.items()
    )
    name = f"count_{event.partition(' ')[0]}"
    return f"{{sqlite}}CREATE TRIGGER {name} AFTER {event} ON entries {when} BEGIN {added} END"


# Only in a batch.  A change of flags alone is counted by ``entry_sql.ADD_TO_COUNTS_OF_FILE``.
COUNT_BY_TRIGGERS: Final = (
    _counting_trigger("INSERT", "", NEW=1),
    _counting_trigger("UPDATE OF state", "WHEN NEW.state <> OLD.state", OLD=-1, NEW=1),
    _counting_trigger("DELETE", "", OLD=-1),
)

# --- version 2: flags

# Members of the text of an outcome; and those that may contain others of these names.
_LOST_SECRET: Final = '"had":"lost"'
_WAS_OVERTAKEN: Final = '"overtaken":true'
_NESTED: Final = ('"value":', '"error":')


def _has_member(outcome: str, member: str) -> str:
    """
    Return the condition that the text *outcome* has *member* itself, and not in a value or an error in it.

    Before those two it has only numbers, texts and lists of texts, and in a text, quotes are escaped.  The
    functions for JSON cannot be relied on: SQLite may be built without, and PostgreSQL refuses some texts.
    """
    at = f"{{at}}({outcome}, '{member}')"
    is_before = " AND ".join(
        f"{at} < {{at}}({outcome} || '{name}', '{name}')" for name in _NESTED
    )
    return f"{at} > 0 AND {is_before}"


# The flags of an entry in tables of version 1.  Lists use this, too: reading a store does not upgrade it.
FLAGS_IN_TEXT: Final = (
    f"CASE WHEN {_has_member('e.outcome', _LOST_SECRET)} THEN 1 ELSE 0 END"
    f" + CASE WHEN {_has_member('e.outcome', _WAS_OVERTAKEN)} THEN 2 ELSE 0 END"
)
# First what takes long, without a lock that others would wait for; few entries have flags.
ADD_FLAGS: Final = (
    f"""
    CREATE TABLE {{s}}flagged AS SELECT e.seq, {FLAGS_IN_TEXT} AS flags FROM {{s}}entries AS e
        WHERE e.outcome IS NOT NULL AND {FLAGS_IN_TEXT} > 0
    """,
    "ALTER TABLE {s}entries ADD COLUMN flags smallint NOT NULL DEFAULT 0",
    "UPDATE {s}entries AS e SET flags = f.flags FROM {s}flagged AS f WHERE f.seq = e.seq",
    "DROP TABLE {s}flagged",
)


def _counting_flags(
    name: str, event: str, when: str, **changes: int
) -> tuple[str, str]:
    added = "".join(
        f"""
        INSERT INTO counts (part, state, verdict, flags, many)
            VALUES (0, {row}.state, coalesce({row}.verdict, ''), {row}.flags, {many})
            ON CONFLICT (part, state, verdict, flags) DO UPDATE SET many = many + excluded.many;
        """
        for row, many in changes.items()
    )
    return (
        f"{{sqlite}}DROP TRIGGER {name}",
        f"{{sqlite}}CREATE TRIGGER {name} AFTER {event} ON entries {when} BEGIN {added} END",
    )


# In a batch, with those.
COUNT_FLAGS: Final = (
    *_counting_flags("count_INSERT", "INSERT", "", NEW=1),
    *_counting_flags(
        "count_UPDATE", "UPDATE OF state", "WHEN NEW.state <> OLD.state", OLD=-1, NEW=1
    ),
    *_counting_flags("count_DELETE", "DELETE", "", OLD=-1),
)

# --- version 3: labels

ADD_LABELS: Final = ("ALTER TABLE {s}entries ADD COLUMN labels text",)

# --- version 4: teams

ADD_TEAMS: Final = (
    "ALTER TABLE {s}entries ADD COLUMN team text NOT NULL DEFAULT ''",
    "CREATE INDEX open_of_team ON {s}entries (team, place) WHERE done_at IS NULL AND lane > 0",
    "DROP INDEX {s}open_of_thing",
    """
    CREATE INDEX open_of_thing ON {s}entries (thing, place)
        WHERE done_at IS NULL AND thing IS NOT NULL
    """,
)

# --- version 5: times before which writes are not sent

ADD_DUE_TIMES: Final = (
    "ALTER TABLE {s}entries ADD COLUMN not_before bigint",
    "ALTER TABLE {s}entries ADD COLUMN due_at bigint",
    "CREATE INDEX due_in_lane ON {s}entries (lane, due_at, place) WHERE done_at IS NULL AND lane < -1",
    """
    CREATE INDEX waiting_of_thing ON {s}entries (thing, place)
        WHERE done_at IS NULL AND lane < -1 AND thing IS NOT NULL
    """,
)

# --- the table in an application's own SQLite file: ``application_table``

# The default of the column ``version`` is the version of the table.  In a table that was upgraded, it stays
# that of the first version, because no statement can change the default of a column.
ROWS_VERSION: Final = 2
APPLICATION_TABLES: Final = f"""
CREATE TABLE IF NOT EXISTS invsvc_outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, base_url TEXT NOT NULL, key TEXT NOT NULL, thing TEXT,
    digest TEXT NOT NULL, operation TEXT NOT NULL, number INTEGER NOT NULL, common TEXT NOT NULL,
    intent TEXT NOT NULL, moved INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL DEFAULT {ROWS_VERSION},
    more TEXT, UNIQUE (base_url, key)
);
CREATE INDEX IF NOT EXISTS invsvc_outbox_new ON invsvc_outbox (base_url, seq) WHERE moved = 0;
CREATE TABLE IF NOT EXISTS invsvc_outbox_journal (base_url TEXT PRIMARY KEY, epoch TEXT NOT NULL);
"""
# Brings a table of the first version, of 0.1.0, up to date.
ADD_MORE: Final = "ALTER TABLE invsvc_outbox ADD COLUMN more TEXT"
