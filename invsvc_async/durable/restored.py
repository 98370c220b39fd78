"""
How a store that went back in time, or was copied, is recognised, and what is noted of it.

In PostgreSQL, by the place of its tables: the cluster's system identifier, the timeline of its log, and the
identity of a table.  Recovery from a backup and the promotion of a replica begin a new timeline; a dump makes
a new table.  A snapshot of the storage that is put back as it was cannot be recognised.  In a file, by the
count of sends of ``durable.epoch``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from invsvc_async.durable.facts import FIND, SET
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.storage.dialect import Script

__all__ = [
    "FACT", "SETTLED", "Mark", "PlaceError", "close_restored", "last_of", "mark_restored", "place_of",
    "wrong_with_place",
]  # fmt: skip

FACT: Final = "restored"  # its name in the store
_THROUGH: Final = "SELECT coalesce(max(seq), 0) FROM {s}entries"
# A time at which the copy was up to date: any will do, so the latest of all is not looked for.
_LATEST: Final = """
SELECT max(done_at) FROM (SELECT done_at FROM {s}entries ORDER BY seq DESC LIMIT 10000) AS latest
"""
_PLACE: Final = """
SELECT CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) END AS timeline,
    to_regclass($1)::oid::text AS entries
"""
_SYSTEM: Final = "SELECT system_identifier::text FROM pg_control_system()"
SETTLED: Final = (
    "%s. Its open writes are settled as if they had been sent again since. What was written after the copy "
    "was made is not in it: look for those writes in your own records."
)
_WHAT: Final = {
    "system": "the database is another server's than before: the journal was copied, or restored from a dump",
    "timeline": "the server was restored from a backup, or a replica was promoted, since the last use",
    "entries": "the tables were made anew: the journal was copied, or restored from a dump",
}


class PlaceError(JournalError):
    """The store may lack sends, because it is in another place than before."""


class Mark(msgspec.Struct, kw_only=True):
    """What is noted of a restored store."""

    through: int  # the last entry of the copy
    since: int | None  # the copy had all sends until then, epoch ms
    is_open: bool = True  # the input has not been read since


_decode = msgspec.json.Decoder(Mark).decode
_encode = msgspec.json.Encoder().encode


def last_of(text: str | None) -> int:
    """Return the number of the last entry of the copy, by the text of the fact; 0 if it was not restored."""
    return 0 if text is None else _decode(text).through


def mark_restored(through: int | None = None) -> Script[None]:
    """Note that sends may have been made of which the store does not know, of entries up to *through*."""
    [(last,)] = yield _THROUGH, ()
    [(since,)] = yield _LATEST, ()
    found = yield FIND, (FACT,)
    earlier = _decode(found[0][0]) if found else None
    if earlier is not None and earlier.is_open:
        since = earlier.since
    yield SET, (FACT, _encode(Mark(through=last if through is None else through, since=since)).decode())


def close_restored() -> Script[None]:
    """Note that the input was read again since the store was restored."""
    found = yield FIND, (FACT,)
    if found:
        yield SET, (FACT, _encode(replace(_decode(found[0][0]), is_open=False)).decode())


def wrong_with_place(before: Mapping[str, str], place: Mapping[str, str]) -> str | None:
    """Return what is wrong with a store that was used in the place *before* and is in *place* now."""
    for name, what in _WHAT.items():
        if name in before and name in place and before[name] != place[name]:
            return what
    return None


async def place_of(connection: Any, entries: str) -> dict[str, str]:  # Any: asyncpg has no types
    """
    Return the place of the table *entries*.

    Raises:
        ConnectionError: The server is a standby, or still recovers, so its timeline is not decided.

    """
    place = dict(await connection.fetchrow(_PLACE, entries))
    if place["timeline"] is None:
        raise ConnectionError("it is a standby, or still recovers")
    may_ask = await connection.fetchval("SELECT has_function_privilege('pg_control_system()', 'EXECUTE')")
    if may_ask:
        place["system"] = await connection.fetchval(_SYSTEM)
    return {
        name: value for name, value in place.items() if value is not None
    }  # without a table: statements fail
