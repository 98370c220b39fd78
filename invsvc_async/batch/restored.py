"""
What a journal that was restored from an older copy says of its writes: any of them may have been sent since.

Such a write gets a send at a time that is not known exactly. It is settled like any write in doubt, and sent
only on proof of absence.
"""

from __future__ import annotations

import time
from contextlib import suppress
from secrets import token_hex
from typing import TYPE_CHECKING

import attrs
import msgspec
from msgspec.structs import replace

from invsvc_async.client import options_of
from invsvc_async.errors import ServiceError
from invsvc_async.journal.doubt import in_doubt
from invsvc_async.journal.packed_intent import pack, unpack
from invsvc_async.journal.sqlite_entries import fact

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable

    from invsvc_async.client import Client
    from invsvc_async.journal.packed_intent import Commons, Packed
    from invsvc_async.reconcile.intent import Intent

__all__ = [
    "FACT",
    "LATEST",
    "THROUGH",
    "Restored",
    "close_mark",
    "closed",
    "kept_in_doubt",
    "last_of",
    "mark",
    "mark_all",
    "restored_of",
]

FACT = "restored"  # its name in the journal
THROUGH = "SELECT coalesce(max(seq), 0) FROM entries"
# A time at which the copy was up to date: any will do, so the latest of all is not looked for.
LATEST = "SELECT max(done_at) FROM (SELECT done_at FROM entries ORDER BY seq DESC LIMIT 10000) AS latest"
_SET = "INSERT OR REPLACE INTO facts VALUES (?, ?)"
_SLACK = 60.0  # s by which the clocks of the processes that wrote the journal may disagree


class _Mark(msgspec.Struct, kw_only=True):
    through: int  # the last entry of the copy
    since: int | None  # the copy had all sends until then, epoch ms
    is_open: bool = True  # the input has not been read since


def mark(before: str | None, through: int, since: int | None) -> str:
    """Return the text of the fact, given the one *before*; *since* is in epoch ms."""
    earlier = None if before is None else msgspec.json.decode(before, type=_Mark)
    if earlier is not None and earlier.is_open:
        since = earlier.since
    return msgspec.json.encode(_Mark(through=through, since=since)).decode()


@attrs.define(kw_only=True)
class Restored:
    """
    The doubts of a restored journal.

    Entries up to ``through`` are of the copy. While ``is_open``, writes that it does not have are in doubt
    too. Those sends were not before ``earliest`` (server time in s), if that is known.
    """

    through: int
    is_open: bool
    earliest: float | None = None
    met: int = 0  # writes of the input that were in doubt

    def of_entry(self, number: int, intent: Intent) -> Intent:
        """Return the intent of an entry that is not done."""
        return in_doubt(intent, self.earliest) if number <= self.through else intent

    def of_new(self, intent: Intent) -> Intent:
        """Return the intent of a write that the journal does not have."""
        self.met += 1
        return in_doubt(intent, self.earliest)


async def restored_of(fact: Callable[[str], Awaitable[str | None]], client: Client) -> Restored | None:
    """
    Return the doubts of a journal with these facts; ``None`` if it was not restored.

    While its input was not read again, this reads the service's clock.

    Raises:
        TransportError: The service cannot be reached.

    """
    text = await fact(FACT)
    if text is None:
        return None
    found = msgspec.json.decode(text, type=_Mark)
    restored = Restored(through=found.through, is_open=found.is_open)
    if found.is_open and found.since is not None:
        with suppress(ServiceError):  # it shows the clock as well
            await client.webhooks.list(limit=1)
        session = options_of(client).session
        now, wall = session.clock.now(), time.time()
        bounds = session.server_clock.bounds(now, options_of(client).reconcile.clock_slack)
        if bounds is not None:
            restored.earliest = now - (wall - found.since / 1000) + bounds.low - _SLACK
    return restored


def closed(text: str) -> str:
    """Return the text of the fact once the input was read again."""
    found = msgspec.json.decode(text, type=_Mark)
    return msgspec.json.encode(replace(found, is_open=False)).decode()


def last_of(text: str | None) -> int:
    """Return the number of the last entry of the copy, by the text of the fact; 0 if it was not restored."""
    return 0 if text is None else msgspec.json.decode(text, type=_Mark).through


def kept_in_doubt(key: str, packed: Packed, commons: Commons, *, keep_sends: bool) -> str:
    """
    Return the packed intent of an entry of the copy that gets a number beyond those of the copy.

    It has the send that the lower number stood for, and is the newest to its thing.
    """
    intent = unpack(key, packed, commons)
    if not keep_sends:
        intent = attrs.evolve(intent, sent=(), bounds=None, baseline=None, nonce=token_hex(8))
    return pack(attrs.evolve(in_doubt(intent), newest=None), commons).text


def mark_all(connection: sqlite3.Connection) -> None:
    """Note that sends of writes that the journal does not have may have been made."""
    through, latest = (connection.execute(text).fetchone()[0] for text in (THROUGH, LATEST))
    text = mark(fact(connection, FACT), through, latest)
    connection.execute(_SET, (FACT, text))


def close_mark(connection: sqlite3.Connection) -> None:
    """Note that the input was read again since the journal was restored."""
    text = fact(connection, FACT)
    if text is not None:
        connection.execute(_SET, (FACT, closed(text)))
