"""The count of sends in a journal and beside it: what it recognises, and that it raises no false alarm."""

from __future__ import annotations

import asyncio
import threading
from itertools import product

import msgspec
import pytest

from invsvc_async import JournalError
from invsvc_async.batch.journals.sqlite import SqliteBatch
from invsvc_async.durable.entry import Entry, State
from invsvc_async.durable.epoch import Standing, wrong_with
from invsvc_async.durable.sqlite_file import fact

STEPS = ("send", "send, then kill", "copy", "copy both", "put back", "put back both", "lose", "lose file")


class World:
    """One journal, the file beside it, a backup of them, and how many sends were made in truth."""

    def __init__(self):
        self.journal = self.beside = Standing("j", 0)
        self.backup = None
        self.made = 0
        self.unnoted = 0  # sends that a kill kept from the file: a copy from right before may hide them

    def step(self, name):
        match name:
            case "send" | "send, then kill":
                self.send(is_noted=name == "send")
            case "copy" | "copy both":
                self.backup = self.journal, self.beside if name == "copy both" else None
            case "put back" if self.backup is not None:
                self.journal = self.backup[0]
            case "put back both" if self.backup is not None and self.backup[1] is not None:
                self.journal, self.beside = self.backup
            case "lose":
                self.journal = None
            case "lose file":
                self.beside = None

    def send(self, *, is_noted):
        """Open the journal, and send one write, unless the journal is refused."""
        if self.is_refused():
            return
        self.beside = self.journal = self.journal or Standing("k", 0)  # opening repeats the count
        self.made += 1
        self.journal = self.journal._replace(sends=self.journal.sends + 1)
        self.unnoted += not is_noted
        if is_noted:
            self.beside = self.journal

    def is_refused(self):
        return wrong_with(self.journal, self.beside) is not None

    @property
    def missing(self):
        return self.made - (0 if self.journal is None else self.journal.sends)


def test_all_short_histories():
    """A journal that lacks sends is refused, unless the file was lost or put back with it, or had not noted them."""
    refused = 0
    for steps in product(STEPS, repeat=5):
        world = World()
        for number, step in enumerate(steps):
            world.step(step)
            told = steps[: number + 1]
            if not world.missing and world.beside is not None:
                assert not world.is_refused(), f"a false alarm after {told}"
            if world.missing > world.unnoted and not {"lose file", "put back both"} & {*told}:
                assert world.is_refused(), f"not recognised after {told}"
                refused += 1
    assert refused > 1000


def entry(key, state=State.SENDING):
    return Entry(key=key, state=state, operation="webhooks.create", intent="{}", common=1)


async def counts(entries, path):
    beside = msgspec.json.decode(path.with_name(f"{path.name}.epoch").read_bytes(), type=Standing).sends
    return int(await entries.ask(lambda connection: fact(connection, "sends"))), beside


async def test_count_of_each_kind_of_store(tmp_path):
    """Each store before a send counts, in groups of any size; other stores do not. Both counts agree."""
    path = tmp_path / "run.db"
    entries = SqliteBatch(path)
    await entries.open()
    for size in (1, 5, 16, 17, 40, 300):
        stored = [entries.put(entry(f"{size}-{number}")) for number in range(size)]
        for each in stored:
            await each
        await entries.put(entry(f"{size}-0", State.DONE))
        await entries.put(entry(f"{size}-0"))
    await entries.aclose()

    entries = SqliteBatch(path)
    await entries.open()
    journal, beside = await counts(entries, path)
    await entries.aclose()
    assert journal >= 1 + 5 + 16 + 17 + 40 + 300 + 6
    assert beside == journal


async def test_count_after_a_group_that_failed(tmp_path):
    """What was rolled back does not count, so that the file never counts more than the journal."""
    path = tmp_path / "run.db"
    entries = SqliteBatch(path)
    await entries.open()

    def fail(_connection):
        raise JournalError("row: it cannot be stored. Try another.")

    stored = [entries.put(entry("a")), entries.put(entry("b"))]
    failed = entries.ask(fail)
    stored.append(entries.put(entry("c")))
    for each in stored:
        await each
    with pytest.raises(JournalError):
        await failed
    await entries.put(entry("d"))
    await entries.aclose()

    entries = SqliteBatch(path)
    await entries.open()
    assert await counts(entries, path) == (4, 4)
    await entries.aclose()


async def test_closing_that_is_cancelled(tmp_path):
    """The file stays this owner's until its thread has stored and counted what was requested."""
    begun, may_end = threading.Event(), threading.Event()
    path = tmp_path / "run.db"
    entries, other = SqliteBatch(path), SqliteBatch(path)
    await entries.open()
    entries.ask(lambda _: begun.set() or may_end.wait(30))
    await asyncio.to_thread(begun.wait, 30)
    entries.put(entry("a"))
    closing = asyncio.create_task(entries.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()
    with pytest.raises(JournalError, match="is in use"):
        await other.open()
    may_end.set()
    for thread in [each for each in threading.enumerate() if str(path) in each.name]:
        await asyncio.to_thread(thread.join, 30)

    await other.open()
    assert [each.key for each in await other.in_flight(0, 10)] == ["a"]
    assert await counts(other, path) == (1, 1)
    await other.aclose()
