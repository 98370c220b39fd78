"""A model of the journal: whatever is done, and wherever it is killed, what was said to be stored is there."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from itertools import groupby
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from invsvc_async import JournalError, Verdict
from invsvc_async.batch.journals.sqlite import SqliteBatch
from invsvc_async.durable.entry import Entry, State

KEYS = st.sampled_from("abcdef")
ENDS = st.sampled_from(list(Verdict))


def entry(key, state, run=1, verdict=None):
    done = {"verdict": str(verdict), "outcome": "{}", "done_at": 1} if verdict else {}
    intent = None if verdict is Verdict.APPLIED else '{"sent":[1],"body":{}}'
    return Entry(
        key=key, content=key.encode(), state=state, run=run, operation="teams.create", intent=intent, **done
    )


class Journal(RuleBasedStateMachine):
    """
    Entries go from to do to sending to done; a crash takes the file as it is on the disk at that moment.

    What is awaited must be there afterwards; what was only asked for may be, whole, in the order of asking.
    """

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp())
        self.number = 0
        self.stored: dict[str, tuple[State, str | None]] = {}
        self.asked: list[tuple[str, State, str | None]] = []
        self.open(self.folder / "0.db")

    def open(self, path):
        self.path, self.entries = path, SqliteBatch(path)
        self.loop.run_until_complete(self.entries.open())

    def teardown(self):
        self.loop.run_until_complete(self.entries.aclose())
        self.loop.close()
        shutil.rmtree(self.folder)

    def found(self):
        async def read():
            done = await self.entries.done(None, 0, 100)
            return [*done, *await self.entries.not_done(0, 100)]

        return {each.key: (each.state, each.verdict) for each in self.loop.run_until_complete(read())}

    def flush(self):
        """Report as stored what was requested: a read waits for it."""
        for key, state, verdict in self.asked:
            self.stored[key] = state, verdict
        self.asked = []

    async def put(self, each, *, waits):
        done = self.entries.put(each)
        if waits:
            await done

    def change(self, key, state, verdict=None, *, waits):
        self.loop.run_until_complete(self.put(entry(key, state, verdict=verdict), waits=waits))
        self.asked.append((key, state, None if verdict is None else str(verdict)))
        if waits:
            self.flush()

    @rule(key=KEYS, waits=st.booleans())
    def send(self, key, waits):
        if self.stored.get(key, (State.TO_DO,))[0] is not State.DONE:
            self.change(key, State.SENDING, waits=waits)

    @rule(key=KEYS, verdict=ENDS, waits=st.booleans())
    def end(self, key, verdict, waits):
        self.change(key, State.DONE, verdict, waits=waits)

    @rule(key=KEYS)
    def shelve(self, key):
        self.entries.shelve(entry(key, State.TO_DO))
        self.asked.append((key, State.TO_DO, None))

    @rule(verdict=ENDS.filter(lambda verdict: verdict is not Verdict.APPLIED))
    def retry(self, verdict):
        count = self.loop.run_until_complete(self.entries.reopen(verdict, keep_sends=True))
        self.flush()
        again = [key for key, (_, said) in self.stored.items() if said == str(verdict)]
        assert count == len(again)
        self.stored.update(dict.fromkeys(again, (State.TO_DO, None)))

    @rule(keys=st.lists(KEYS, min_size=1, unique=True), run=st.integers(1, 9))
    def feed(self, keys, run):
        marks = self.loop.run_until_complete(self.entries.marks(keys, run))
        self.flush()
        assert set(marks) == set(keys) & set(self.stored)
        assert all(
            mark.content == key.encode() and mark.state == self.stored[key][0] for key, mark in marks.items()
        )

    @rule()
    def close_and_open(self):
        self.loop.run_until_complete(self.entries.aclose())
        self.flush()
        self.open(self.path)

    @rule()
    def crash(self):
        """Go on with the file and its log as they are on the disk now, the writer perhaps in the middle of a commit."""
        self.number += 1
        path = self.folder / f"{self.number}.db"
        for end in (
            ".epoch",
            "-wal",
            "",
        ):  # the log first: a checkpoint must not move what the copy then lacks
            source = self.path.with_name(self.path.name + end)
            if source.exists():
                shutil.copy(source, path.with_name(path.name + end))
        self.loop.run_until_complete(self.entries.aclose())
        self.open(path)
        found = self.found()
        possible = [dict(self.stored)]
        for key, state, verdict in self.asked:
            possible.append({**possible[-1], key: (state, verdict)})
        assert found in possible
        self.stored, self.asked = found, []

    @precondition(lambda self: not self.asked)
    @invariant()
    def holds_what_was_stored(self):
        assert self.found() == self.stored


TestJournal = Journal.TestCase
TestJournal.pytestmark = [pytest.mark.no_secret_scan]  # which keeps its writes until later tests
TestJournal.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)


async def test_what_is_asked_for_together_is_one_commit(tmp_path):
    """Puts of one round of the loop share a commit, and those that come during it share the next."""
    said = []
    entries = SqliteBatch(tmp_path / "run.db")
    await entries.open()
    try:
        await entries.ask(lambda connection: connection.set_trace_callback(said.append))
        first = [entries.put(entry(f"a{i}", State.SENDING)) for i in range(100)]
        await asyncio.sleep(0)  # the first group is handed over
        second = [entries.put(entry(f"b{i}", State.SENDING)) for i in range(100)]
        await asyncio.gather(*first, *second)
    finally:
        await entries.aclose()
    assert [line.partition(" (")[0] for line, _ in groupby(said)] == [
        "COMMIT",
        "INSERT INTO entries",
        "INSERT INTO entries",
    ]


@pytest.mark.parametrize("values_at_most", [32766, 999])  # as builds of SQLite have it, new and old
async def test_groups_of_every_size(tmp_path, monkeypatch, values_at_most):
    """However many are asked for together, few statements store them all, and what is taken out is gone."""
    connect, said = SqliteBatch._connect, []

    def limited(self):
        connection = connect(self)
        connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, values_at_most)
        self._prepare(connection)
        connection.set_trace_callback(said.append)
        return connection

    monkeypatch.setattr(SqliteBatch, "_connect", limited)
    entries = SqliteBatch(tmp_path / "run.db")
    await entries.open()
    wanted = {}
    try:
        for size in (1, 2, 15, 16, 17, 80, 81, 255, 256, 257, 600):
            keys = [f"{size}-{i}" for i in range(size)]
            await asyncio.gather(*(entries.put(entry(key, State.TO_DO)) for key in keys))
            gone = keys[: size // 3]
            again = [entries.put(entry(key, State.SENDING)) for key in keys[size // 3 :]]
            await asyncio.gather(*map(entries.take_out, gone if size % 2 else ()), *again)
            wanted |= dict.fromkeys(keys if size % 2 == 0 else keys[size // 3 :], State.SENDING)
            wanted |= dict.fromkeys(gone, State.TO_DO) if size % 2 == 0 else {}
        found = await entries.not_done(0, 10_000)
    finally:
        await entries.aclose()
    assert {each.key: each.state for each in found} == wanted
    # A statement is traced again for each trigger that it fires.
    assert sum(text.startswith("INSERT INTO entries") for text, _ in groupby(said)) < 100


async def test_group_that_fails_in_part(tmp_path):
    """What cannot be stored fails by itself: the others of its group are stored."""
    entries = SqliteBatch(tmp_path / "run.db")
    await entries.open()
    try:
        bad = msgspec.structs.replace(entry("bad", State.TO_DO), key=None)
        asked = [entries.put(each) for each in (entry("a", State.TO_DO), bad, entry("b", State.TO_DO))]
        ends = await asyncio.gather(*asked, return_exceptions=True)
        found = await entries.not_done(0, 10)
    finally:
        await entries.aclose()
    assert [type(end) for end in ends] == [type(None), JournalError, type(None)]
    assert [each.key for each in found] == ["a", "b"]
