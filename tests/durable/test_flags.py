"""What a store counts of outcomes: not what the service's own data says in the same words."""

from __future__ import annotations

import pytest

from invsvc_async import Outbox, Verdict
from invsvc_async.batch.entries import result_of, summary_of
from invsvc_async.client import options_of
from invsvc_async.durable.entries import JournalEntries
from invsvc_async.durable.entry import State
from invsvc_async.durable.records import VerdictRecord, encoded, flags_of
from invsvc_async.durable.store.noted import Chosen
from invsvc_async.durable.store.statements.schema_sql import FLAGS_IN_TEXT
from tests.batch.conftest import client_of
from tests.durable.stores import KINDS, counts, fill, lanes_of, opened, store_of
from tests.outbox.conftest import enqueue, verdict_of
from tests.support.database import database
from tests.support.inside import outbox_entries

pytestmark = pytest.mark.one_python

SCAN = "SELECT state, verdict, e.flags, count(*) FROM {s}entries AS e GROUP BY 1, 2, 3"
# As version 1 of the tables has them, in the text of the outcome alone.
SCAN_OF_TEXT = SCAN.replace("e.flags", FLAGS_IN_TEXT)
METADATA = {"overtaken": True, "had": "lost", "value": {"had": "lost"}, "error": None}
TEXTS = [
    '"had":"lost","overtaken":true',
    '\\"had":"lost"',
    '"value":',
    "\\",
    '{"value":{"overtaken":true}}',
]


def team(client, **metadata):
    return client.teams.create(legal_name="The team", metadata=metadata)


@pytest.fixture(params=KINDS)
def place(request, tmp_path):
    """Return the place of an outbox."""
    if request.param == "SQLite":
        return tmp_path / "app.db"
    return database().at(outbox=f"f{abs(hash(request.node.nodeid))}")


async def test_team_whose_metadata_has_the_words_of_an_outcome(client, place):
    """It is neither overtaken nor is its secret lost."""
    async with Outbox.open(place, client) as outbox:
        [key] = await enqueue(outbox, team(client, **METADATA))
        async with outbox.dispatching():
            assert (await verdict_of(outbox, key)).verdict is Verdict.APPLIED
        summary = await summary_of(outbox_entries(outbox))
    assert (summary.overtaken, summary.secrets_lost) == (0, 0)


async def test_replay_of_a_team_whose_metadata_has_them(service, address):
    """It is no webhook whose secret was returned."""
    async with client_of(service, journal=address) as client:
        for _ in range(2):
            outcome = await team(client, had="returned").keyed("k").outcome()
            assert outcome.secret is None
        assert outcome.replayed
    entries = JournalEntries(str(address), options_of(client).core)
    await entries.open()
    try:
        summary = await summary_of(entries)
        [entry] = await entries.first(1, Chosen(state="applied"))
        assert result_of(entries, entry).secret is None
    finally:
        await entries.aclose()
    assert (summary.overtaken, summary.secrets_lost) == (0, 0)


def records():
    """Yield records, each with its flags."""
    for text in TEXTS:
        for lost in (False, True):
            for overtaken in (False, True):
                nasty = {
                    "why": text,
                    "failed": text,
                    "candidates": (text,),
                    "story": text,
                    "thing": text,
                }
                flags = {"had": "lost" if lost else "returned", "overtaken": overtaken}
                for more in (
                    {},
                    {"value": METADATA},
                    {"error": METADATA},
                    {"value": METADATA, "error": METADATA},
                ):
                    yield VerdictRecord(**nasty, **flags, **more), lost + 2 * overtaken


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("counted", [False, True])
async def test_flags_of_an_entry(client, tmp_path, request, kind, counted):
    """They are those of its record, whatever texts and values that has."""
    expected = {0: 0, 1: 0, 2: 0, 3: 0}
    async with opened(
        store_of(kind, tmp_path, request.node.nodeid, lanes=1, counted=counted)
    ) as store:
        (lane,) = await lanes_of(store, options_of(client).core.clock)
        if counted and kind != "SQLite":
            await store.rows("DELETE FROM {s}counts")
        made = [*records()]
        for (record, flags), entry in zip(
            made, await fill(store, *map(str, range(len(made)))), strict=True
        ):
            assert flags_of(record) == flags
            entry.state = State.DONE
            entry.verdict = "applied"
            entry.outcome = encoded(record)
            entry.flags = flags
            entry.done_at = 1
            await lane.put(entry)
            expected[flags] += 1
        for text in (SCAN, SCAN_OF_TEXT):
            found = await counts(store, text)
            assert {
                flags: many for (state, _, flags), many in found.items()
            } == expected
        if counted:
            kept = {
                which[2]: many
                for which, many in (await counts(store)).items()
                if which[0] == State.DONE
            }
            assert kept == expected
