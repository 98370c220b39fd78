"""A model of the store of a batch: whatever is done, and wherever it is killed, what was said to be stored is there."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from invsvc_async.batch.entries import BatchEntries
from invsvc_async.concurrency.clock import SystemClock
from invsvc_async.durable.entries import reopen_all
from invsvc_async.durable.entry import Entry, LostEntryError, State
from invsvc_async.durable.leases import Leases
from invsvc_async.durable.results import Consumer
from invsvc_async.durable.store.lanes import lane_for
from invsvc_async.durable.store.states import Left
from tests.durable.stores import SENT, counts, numbers, store_of
from tests.support.waiting import until_no

KEYS = st.sampled_from("abcd")
ENDS = st.sampled_from(["applied", "refused", "unknown"])
OUTCOMES = st.sampled_from(
    ["{}", '{"had":"lost"}', '{"overtaken":true}', '{"had":"lost","overtaken":true}']
)
FRESH = '{"body":{}}'
BUSY = """
SELECT 1 FROM pg_stat_activity
    WHERE application_name LIKE 'invsvc batch %' AND state <> 'idle' AND pid <> pg_backend_pid()
"""
NUMBERS = count()  # of all stores of these tests


class Row(NamedTuple):
    """What the store has of an entry."""

    place: int
    state: State = State.TO_DO
    verdict: str | None = None
    flags: int = 0
    sends: bool = False  # its intent says that a send of it may have had an effect
    full: bool = True  # it has its intent and outcome
    unheard: bool = False  # nobody has acknowledged its verdict
    left: bool = False  # the state that it left of its thing is known


def _sends(intent: str) -> bool:
    return '"sent"' in intent and '"not applied"' not in intent


class StoreModel(RuleBasedStateMachine):
    """
    Entries are added, sent, done, made to do again, dropped and pruned, by one process after another.

    A crash ends the process at any moment.  What is awaited must be there afterwards; what was only asked for
    may be, whole, in the order of asking.
    """

    kind = ""

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp())
        self.name, self.places = f"model{next(NUMBERS)}", count(1)
        self.stored: dict[str, Row] = {}
        self.asked: list[tuple[str, Row]] = []
        self.done(self.open())

    def done(self, coroutine):
        return self.loop.run_until_complete(coroutine)

    async def open(self):
        """Begin as a new process, which takes what others have left."""
        self.store = store_of(
            self.kind, self.folder, self.name, lanes=3 if self.kind != "SQLite" else 1
        )
        self.entries = BatchEntries(self.store)
        await self.entries.open()
        self.leases = Leases(self.store, SystemClock())
        await self.leases.beat()
        await self.leases.take(3)
        self.consumer = Consumer(self.leases)

    async def close(self):
        """End as a process does that ends well."""
        await self.leases.leave()
        await self.leases.end()
        await self.entries.aclose()

    def teardown(self):
        async def end():
            if self.kind != "SQLite":
                await self.store.rows(f"DROP SCHEMA {self.store.schema} CASCADE")
            await self.entries.aclose()

        self.done(end())
        self.loop.close()
        shutil.rmtree(self.folder)

    # --- the model

    @property
    def asked_for(self):
        """What is stored once all is that was asked for."""
        return {**self.stored, **dict(self.asked)}

    def flush(self):
        """Wait for what was asked for."""
        self.done(self.store.idle())
        self.stored, self.asked = self.asked_for, []

    async def found(self):
        """Return the same as the model, by key."""
        rows = {}
        unheard = {*await numbers(self.store, "SELECT seq FROM {s}unheard")}
        left = {
            *await numbers(
                self.store, "SELECT thing FROM {s}states WHERE state IS NOT NULL"
            )
        }
        places = await numbers(
            self.store, "SELECT place FROM {s}entries ORDER BY place"
        )
        flags = dict(await self.store.rows("SELECT seq, flags FROM {s}entries"))
        for entry in await self.store.entries("true"):
            rows[entry.key] = Row(
                places.index(entry.place), entry.state, entry.verdict, flags[entry.seq], _sends(entry.intent or ""),
                entry.intent is not None, entry.seq in unheard, entry.key in left,
            )  # fmt: skip
        return rows

    @staticmethod
    def shown(rows):
        """Return *rows* of the model as they are found: places as an order."""
        order = sorted(row.place for row in rows.values())
        return {
            key: row._replace(place=order.index(row.place)) for key, row in rows.items()
        }

    def entry(self, key, row, outcome=None):
        (found,) = self.done(self.store.entries("e.key = $1", key))
        found.state, found.verdict, found.outcome = row.state, row.verdict, outcome
        found.flags = row.flags
        found.intent, found.done_at = (
            SENT if row.sends else FRESH,
            1 if row.state is State.DONE else None,
        )
        found.flags = row.flags
        return found

    def put(self, key, row, *, waits, outcome=None, left=None):
        """Ask for *row*; a read has flushed what was asked for before."""
        entry = self.entry(key, row, outcome)

        async def ask():
            stored = self.leases.lanes[entry.lane].put(entry, left)
            if waits:
                await stored

        self.done(ask())
        self.asked.append((key, row))
        if waits:
            self.flush()

    def choose(self, key, *states):
        row = self.asked_for.get(key)
        return row if row is not None and row.state in states else None

    # --- what a process does

    @rule(keys=st.lists(KEYS, min_size=1, unique=True))
    def add(self, keys):
        self.flush()
        lanes = self.entries.store.how.lanes
        new = [
            Entry(
                key=key, thing=key, lane=lane_for(key, key, lanes), digest=key, state=State.TO_DO, intent=FRESH,
                operation="webhooks.update",
            )
            for key in keys
        ]  # fmt: skip
        added = self.done(self.entries.input_notes.add(new, self.leases.name, None))
        fresh = [key for key in keys if key not in self.stored]
        assert {*added.new} == {*fresh}
        assert {key: known.state for key, known in added.others.items()} == {
            key: self.stored[key].state for key in keys if key not in fresh
        }
        self.stored |= {key: Row(next(self.places)) for key in fresh}

    @rule(key=KEYS, waits=st.booleans())
    def send(self, key, waits):
        if row := self.choose(key, State.TO_DO, State.SENDING):
            self.put(key, row._replace(state=State.SENDING, sends=True), waits=waits)

    @rule(key=KEYS, verdict=ENDS, outcome=OUTCOMES, waits=st.booleans())
    def end(self, key, verdict, outcome, waits):
        if row := self.choose(key, State.TO_DO, State.SENDING):
            flags = ("lost" in outcome) + 2 * ("overtaken" in outcome)
            has_left = verdict == "applied"
            left = Left(key, state="{}") if has_left else None
            row = row._replace(
                state=State.DONE, verdict=verdict, flags=flags, unheard=True
            )
            self.put(
                key,
                row._replace(left=row.left or has_left),
                waits=waits,
                outcome=outcome,
                left=left,
            )

    @rule(key=KEYS)
    def put_back(self, key):
        if row := self.choose(key, State.SENDING):
            self.put(key, row._replace(state=State.TO_DO, sends=False), waits=False)

    @rule(key=KEYS, drops=st.booleans())
    def send_of_what_is_not_open(self, key, drops):
        """Expect a refusal, whether the entry is done or was dropped."""
        self.flush()
        row = self.choose(key, State.TO_DO) if drops else self.choose(key, State.DONE)
        if row is None or (drops and row.sends):
            return
        entry = self.entry(key, row._replace(state=State.SENDING, verdict=None))
        if drops:
            self.drop(key)
        with pytest.raises(LostEntryError):
            self.done(self.sent(self.leases, entry))

    async def sent(self, leases, entry):
        await leases.lanes[entry.lane].put(entry)

    # --- what people do

    @rule(
        verdict=ENDS.filter(lambda verdict: verdict != "applied"), at_end=st.booleans()
    )
    def retry(self, verdict, at_end):
        self.flush()
        again = [
            key
            for key, row in self.stored.items()
            if row.verdict == verdict and row.full
        ]
        assert self.done(reopen_all(self.entries, [verdict], at_end=at_end)) == len(
            again
        )
        self.reopened(again, at_end=at_end)

    @rule(keys=st.lists(KEYS), at_end=st.booleans())
    def retry_keys(self, keys, at_end):
        self.flush()
        again = [
            key for key in sorted({*keys} & {*self.stored})
            if self.stored[key].full and self.stored[key].verdict not in (None, "applied")
        ]  # fmt: skip
        assert self.done(self.entries.do_again(keys, at_end=at_end)) == again
        self.reopened(again, at_end=at_end)

    def reopened(self, keys, *, at_end):
        for key in sorted(keys, key=lambda key: self.first[key]):
            row = self.stored[key]
            place = next(self.places) if at_end else row.place
            self.stored[key] = row._replace(
                place=place, state=State.TO_DO, verdict=None, flags=0, unheard=False,
                sends=row.sends and row.verdict == "unknown",
            )  # fmt: skip

    @property
    def first(self):
        """The numbers of entries, by key."""
        return {entry.key: entry.seq for entry in self.done(self.store.entries("true"))}

    @rule(key=KEYS)
    def drop(self, key):
        self.flush()
        row = self.stored.get(key)
        goes = row is not None and row.state is State.TO_DO and not row.sends
        assert self.done(self.entries.drop(key)) == goes
        if goes:
            del self.stored[key]

    @rule()
    def prune(self):
        self.flush()
        old = [
            key for key, row in self.stored.items()
            if row.state is State.DONE and row.verdict != "unknown" and row.full and not row.unheard
        ]  # fmt: skip
        assert self.done(self.entries.prune(2**50)) == len(old)
        for key in old:
            self.stored[key] = self.stored[key]._replace(
                full=False, sends=False, left=False
            )

    # --- who gets the verdicts

    @rule(many=st.integers(0, 6), acknowledged=st.integers(0, 6))
    def take(self, many, acknowledged):
        self.flush()
        given = self.done(self.consumer.take(many))
        unheard = {key for key, row in self.stored.items() if row.unheard}
        assert {entry.key for entry in given} <= unheard
        assert len(given) == min(many, len(unheard))
        heard, rest = given[:acknowledged], given[acknowledged:]

        async def acknowledge():
            for entry in (
                *(replace(entry, taker="another.1") for entry in given),
                *heard,
            ):
                self.consumer.acknowledge(entry)
            for entry in rest:
                self.consumer.give_back(entry, 0.0)
            await self.consumer.save()

        self.done(acknowledge())
        for entry in heard:
            self.stored[entry.key] = self.stored[entry.key]._replace(unheard=False)

    # --- the ends of processes

    @rule()
    def close_and_open(self):
        self.done(self.close())
        self.stored, self.asked = self.asked_for, []
        self.done(self.open())

    @rule()
    def crash(self):
        """Go on with what is on the disk now, the process perhaps in the middle of a commit."""
        self.done(self.kill())
        self.done(self.open())
        found = self.done(self.found())
        possible = [self.stored]
        for key, row in self.asked:
            possible.append({**possible[-1], key: row})
        [self.stored] = [each for each in possible if self.shown(each) == found][-1:]
        self.asked = []

    async def kill(self):
        raise NotImplementedError

    @precondition(lambda self: not self.asked)
    @invariant()
    def holds_what_was_stored(self):
        assert self.done(self.found()) == self.shown(self.stored)
        expected = {}
        for row in self.stored.values():
            which = row.state, row.verdict or "", row.flags
            expected[which] = expected.get(which, 0) + 1
        assert self.done(counts(self.store)) == expected


class FileModel(StoreModel):
    """The same in a file: a crash takes it as it is on the disk at that moment."""

    kind = "SQLite"

    async def kill(self):
        folder = Path(tempfile.mkdtemp())
        for end in (
            ".epoch",
            "-wal",
            "",
        ):  # the log first: a checkpoint must not move what the copy then lacks
            source = self.store.path.with_name(self.store.path.name + end)
            if source.exists():
                shutil.copy(source, folder)
        await self.entries.aclose()
        shutil.rmtree(self.folder)
        self.folder = folder


class DatabaseModel(StoreModel):
    """The same in a database, in which another process may take over what a silent one has."""

    kind = "PostgreSQL"

    async def kill(self):
        if self.store._flushing is not None:
            self.store._flushing.cancel()
        self.store._pool.terminate()
        await self.silent()

    async def silent(self):
        """Wait until the server has ended what was asked for, and the process counts as dead."""
        other = store_of(self.kind, self.folder, self.name, lanes=3)
        await other.open_for(None, same_mode=False)
        await until_no(lambda: other.rows(BUSY))
        await other.rows("UPDATE {s}members SET seen = seen - 3600")
        await other.aclose()

    @rule(key=KEYS)
    def take_over(self, key):
        """Another process takes the lanes of a stopped one, which then stores nothing any more."""
        self.flush()
        row = self.choose(key, State.TO_DO, State.SENDING)
        entry = (
            None
            if row is None
            else self.entry(key, row._replace(state=State.SENDING, sends=True))
        )
        stopped, store = self.leases, self.entries

        async def take_over():
            await self.silent()
            await self.open()
            if entry is not None:
                entry.taker = None
                with pytest.raises(LostEntryError):
                    await self.sent(stopped, entry)
            await stopped.beat()
            assert stopped.lanes == {}
            await stopped.end()
            await store.aclose()

        self.done(take_over())
        assert len(self.leases.lanes) == self.store.how.lanes


COMMON = settings(
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
TestFileModel = FileModel.TestCase
TestFileModel.settings = settings(COMMON, max_examples=25)
# which keeps its writes until later tests
TestFileModel.pytestmark = [pytest.mark.no_secret_scan, pytest.mark.untraced]
TestDatabaseModel = DatabaseModel.TestCase
TestDatabaseModel.settings = settings(COMMON, max_examples=15)
TestDatabaseModel.pytestmark = TestFileModel.pytestmark
