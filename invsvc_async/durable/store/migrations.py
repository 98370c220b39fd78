"""
What each version of the tables of a store of writes has changed, in the order of the versions.

=======  ===========================================================================================
1        as 0.1.0 makes them
2        ``entries.flags``: what is counted of an outcome.  Before, statements looked for it in the
         text of the outcome.  That is still done for tables of version 1
         which are only read (``FLAGS_IN_TEXT``)
3        ``entries.labels``: those of the user
4        ``entries.team``, ``""`` in what is there, with an index of what is open in the order of teams;
         the index ``open_of_thing`` has ``place``, too
5        ``entries.not_before`` and ``due_at``, with indexes of what waits for its time
=======  ===========================================================================================

Migrations are texts of their own, and not made of those that make new tables, which change.
"""

from __future__ import annotations

from typing import Final

from invsvc_async.durable.store.statements import schema_sql
from invsvc_async.storage.schema import Migration, Schema

WITH_FLAGS: Final = 2  # the first version whose entries have flags
WITH_LABELS: Final = 3  # the first one whose entries have labels

_WITH_TEAMS: Final = 4
WITH_DUE_TIMES: Final = (
    5  # the first one whose entries have times before which they are not sent
)
_ANEW: Final = (
    "Finish what is open in it with that version, or begin a new one in its place, a batch or an outbox with "
    "--restored"
)


def schema_of(*, counted: bool) -> Schema:
    """Return the versions of the tables of a store that is *counted* or not."""
    flags: tuple[str, ...] = schema_sql.ADD_FLAGS
    if counted:
        flags += schema_sql.COUNT_FLAGS
    return Schema(
        _ANEW,
        (
            Migration(WITH_FLAGS, flags),
            Migration(WITH_LABELS, schema_sql.ADD_LABELS),
            Migration(_WITH_TEAMS, schema_sql.ADD_TEAMS),
            Migration(WITH_DUE_TIMES, schema_sql.ADD_DUE_TIMES),
        ),
    )
