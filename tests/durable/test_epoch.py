"""The count of sends in a journal and beside it: what it recognises, and that it raises no false alarm."""

from __future__ import annotations

import asyncio
import threading
from itertools import product

import msgspec
import pytest

from invsvc_async import JournalError
from invsvc_async.client import options_of
from invsvc_async.durable.entry import Entry, LostEntryError, State
from invsvc_async.durable.leases import Leases
from invsvc_async.durable.store.lanes import new_lane
from invsvc_async.durable.store.restored import CountedSends, wrong_with
from invsvc_async.durable.store.sqlite import SqliteStore
from invsvc_async.durable.store.tables import Opening
from tests.durable.stores import numbers, opened
from tests.support.waiting import cancel

pytestmark = pytest.mark.one_python

STEPS = (
    "send",
    "send, then kill",
    "copy",
    "copy both",
    "put back",
    "put back both",
    "lose",
    "lose file",
)


class World:
    """One journal, the file beside it, a backup of them, and how many sends were made in truth."""

    def __init__(self):
        self.journal = self.beside = CountedSends("j", 0)
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
            case "put back both" if (
                self.backup is not None and self.backup[1] is not None
            ):
                self.journal, self.beside = self.backup
            case "lose":
                self.journal = None
            case "lose file":
                self.beside = None

    def send(self, *, is_noted):
        """Open the journal, and send one write, unless the journal is refused."""
        if self.is_refused():
            return
        # opening repeats the count
        self.beside = self.journal = self.journal or CountedSends("k", 0)
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
            if world.missing > world.unnoted and not {"lose file", "put back both"} & {
                *told
            }:
                assert world.is_refused(), f"not recognised after {told}"
                refused += 1
    assert refused > 1000


def entry(key, state=State.SENDING, seq=0):
    return Entry(
        key=key,
        seq=seq,
        state=state,
        operation="webhooks.create",
        intent="{}",
        common=1,
    )


@pytest.fixture
async def journal(tmp_path, client):
    """Yield the store of a client's journal, and its lane."""
    clock = options_of(client).core.clock
    async with opened(SqliteStore(tmp_path / "calls.db", Opening("test"))) as store:
        leases = Leases(store, clock)
        yield store, leases.hold(await store.run(lambda: new_lane("a.1", "")), "a.1")


async def counted(path):
    """Return the count of sends in the file, once it is opened again, and the one beside it before that."""
    beside = msgspec.json.decode(
        path.with_name(f"{path.name}.epoch").read_bytes(), type=CountedSends
    ).sends
    async with opened(SqliteStore(path, Opening("test", run_by="the test"))) as store:
        [sends] = await numbers(
            store, "SELECT value FROM {s}facts WHERE name = 'sends'"
        )
    return int(sends), beside


async def test_count_of_each_kind_of_store(journal, tmp_path):
    """Each store before a send counts, in groups of any size; other stores do not. Both counts agree."""
    store, lane = journal
    for size in (1, 5, 16, 17, 40, 300):
        await asyncio.gather(
            *[lane.put(entry(f"{size}-{number}")) for number in range(size)]
        )
        await lane.put(entry(f"{size}-0", State.DONE))
        await lane.put(entry(f"{size}-0"))
        (there,) = await store.entries("e.key = $1", f"{size}-0")
        await lane.put(entry(there.key, seq=there.seq))
    await store.aclose()
    made = 1 + 5 + 16 + 17 + 40 + 300 + 6 + 6
    assert await counted(store.path) == (made, made)


async def test_count_of_what_was_not_stored(journal):
    """A send of an entry that was dropped meanwhile, or is done, counts nowhere: the file is no older copy."""
    store, lane = journal
    for key in "ab":
        await lane.put(entry(key))
    dropped, done = await store.entries("true ORDER BY e.seq")
    await store.rows("DELETE FROM {s}entries WHERE key = 'a'")
    done.state, done.done_at = State.DONE, 1
    await lane.put(done)
    for each in (dropped, done):
        with pytest.raises(LostEntryError):
            await lane.put(entry(each.key, seq=each.seq))
    await store.aclose()
    assert await counted(store.path) == (2, 2)


async def test_count_after_a_group_that_failed(journal):
    """What was rolled back does not count, so that the file never counts more than the journal."""
    store, lane = journal

    def fail(_connection):
        raise JournalError("row: it cannot be stored. Try another.")

    stored = [lane.put(entry("a")), lane.put(entry("b"))]
    failed = store.ask(fail)
    stored.append(lane.put(entry("c")))
    await asyncio.gather(*stored)
    with pytest.raises(JournalError):
        await failed
    await lane.put(entry("d"))
    await store.aclose()
    assert await counted(store.path) == (4, 4)


@pytest.mark.slow
async def test_closing_that_is_cancelled(journal):
    """The file stays this owner's until its thread has stored and counted what was requested."""
    store, lane = journal
    begun, may_end = threading.Event(), threading.Event()
    store.ask(lambda _: begun.set() or may_end.wait(30))
    await asyncio.to_thread(begun.wait, 30)
    lane.put(entry("a"))
    closing = asyncio.create_task(store.aclose())
    await asyncio.sleep(0)
    await cancel(closing)
    assert closing.cancelled()
    with pytest.raises(JournalError, match="is in use"):
        await SqliteStore(store.path, Opening("test")).open_for(None, same_mode=False)
    may_end.set()
    for thread in [
        each for each in threading.enumerate() if str(store.path) in each.name
    ]:
        await asyncio.to_thread(thread.join, 30)

    async with opened(SqliteStore(store.path, Opening("test"))) as other:
        assert [each.key for each in await other.entries("e.state = 1")] == ["a"]
    assert await counted(store.path) == (1, 1)
