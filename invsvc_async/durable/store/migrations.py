"""
What each version of the tables of a store of writes has changed, in the order of the versions.

=======  ===========================================================================================
1        as 0.1.0 makes them
2        ``entries.flags``: what is counted of an outcome.  Before, statements looked for it in the
         text of the outcome, which is not done any more, except here
3        ``entries.labels``: those of the user
4        ``entries.team``, ``""`` in what is there, with an index of what is open in the order of teams;
         the index ``open_of_thing`` has ``place``, too
5        ``entries.not_before`` and ``due_at``, with indexes of what waits for its time
=======  ===========================================================================================

Migrations are texts of their own, and not made of those that make new tables, which change.
"""

from __future__ import annotations

from typing import Final

from invsvc_async.storage.schema import Migration, Schema

WITH_FLAGS: Final = 2  # the first version whose entries have flags
WITH_LABELS: Final = 3  # the first one whose entries have labels

_WITH_TEAMS: Final = 4
WITH_DUE_TIMES: Final = (
    5  # the first one whose entries have times before which they are not sent
)
# Members of the text of an outcome; and those that may contain others of these names.
_LOST_SECRET: Final = '"had":"lost"'
_WAS_OVERTAKEN: Final = '"overtaken":true'
_NESTED: Final = ('"value":', '"error":')
_ANEW: Final = (
    "Finish what is open in it with that version, or begin a new one in its place, a batch or an outbox with "
    "--restored"
)


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
_ADD_FLAGS: Final = (
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


_COUNT_FLAGS: Final = (
    *_counting_flags("count_INSERT", "INSERT", "", NEW=1),
    *_counting_flags(
        "count_UPDATE", "UPDATE OF state", "WHEN NEW.state <> OLD.state", OLD=-1, NEW=1
    ),
    *_counting_flags("count_DELETE", "DELETE", "", OLD=-1),
)


_ADD_LABELS: Final = ("ALTER TABLE {s}entries ADD COLUMN labels text",)


_ADD_TEAMS: Final = (
    "ALTER TABLE {s}entries ADD COLUMN team text NOT NULL DEFAULT ''",
    "CREATE INDEX open_of_team ON {s}entries (team, place) WHERE done_at IS NULL AND lane > 0",
    "DROP INDEX {s}open_of_thing",
    """
    CREATE INDEX open_of_thing ON {s}entries (thing, place)
        WHERE done_at IS NULL AND thing IS NOT NULL
    """,
)


_ADD_DUE_TIMES: Final = (
    "ALTER TABLE {s}entries ADD COLUMN not_before bigint",
    "ALTER TABLE {s}entries ADD COLUMN due_at bigint",
    "CREATE INDEX due_in_lane ON {s}entries (lane, due_at, place) WHERE done_at IS NULL AND lane < -1",
    """
    CREATE INDEX waiting_of_thing ON {s}entries (thing, place)
        WHERE done_at IS NULL AND lane < -1 AND thing IS NOT NULL
    """,
)


def schema_of(*, counted: bool) -> Schema:
    """Return the versions of the tables of a store that is *counted* or not."""
    flags = (*_ADD_FLAGS, *_COUNT_FLAGS) if counted else _ADD_FLAGS
    return Schema(
        _ANEW,
        (
            Migration(WITH_FLAGS, flags),
            Migration(WITH_LABELS, _ADD_LABELS),
            Migration(_WITH_TEAMS, _ADD_TEAMS),
            Migration(WITH_DUE_TIMES, _ADD_DUE_TIMES),
        ),
    )
