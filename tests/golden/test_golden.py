"""The stores of each released version: opened, continued, pruned, and judged by the service's ledger."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from invsvc_async import Outbox, Verdict
from invsvc_async.batch import Batch
from invsvc_async.batch.entries import summary_of
from invsvc_async.client import options_of
from invsvc_async.durable.entries import JournalEntries
from invsvc_async.events.stores import Delivery
from tests.batch.conftest import HOOK, client_of
from tests.batch.writing import all_of, create_line, creates, opened
from tests.durable.stores import COUNTED
from tests.durable.writing import create, rename
from tests.golden.loading import (
    DATABASES,
    KINDS,
    VERSIONS,
    golden,
    golden_events,
    store_at,
)
from tests.outbox.conftest import verdict_of
from tests.support.children import gone_after

SCAN = "SELECT state, coalesce(verdict, ''), e.flags, count(*) FROM {s}entries AS e GROUP BY 1, 2, 3"
LATER = 2**50  # epoch ms

pytestmark = [
    pytest.mark.one_python,
    pytest.mark.parametrize("version", VERSIONS),
    pytest.mark.parametrize("which", DATABASES),
]


def made(service):
    """Return how often each webhook was made, by its URL and description."""
    return Counter(
        (each.body["url"], each.body.get("description"))
        for each in service.ledger.effects("webhooks.create")
    )


def descriptions(service):
    """Return what updates of webhooks have written, in the order of their effects."""
    effects = service.ledger.effects("webhooks.update")
    return [each.body["description"] for each in effects]


def later():
    return datetime.now(UTC) + timedelta(hours=1)


async def open_entries(entries):
    await entries.open()
    return entries


async def test_journal(service, tmp_path, which, version):
    """What is done is replayed; what was open is settled or sent, in its order; nothing happens twice."""
    async with golden(service, version, "journal", which, tmp_path) as place:
        before = made(service)
        async with client_of(service, journal=place) as client:
            sent = service.arrivals()
            for write in (create(client, "done"), rename(client, "renamed", "renamed")):
                outcome = await write.outcome()
                assert (outcome.verdict, outcome.replayed) == (Verdict.APPLIED, True)
            lost = await client.outcome_of("secret lost")
            assert (lost.verdict, lost.secret) == (Verdict.APPLIED, "lost")
            resolved = await client.outcome_of("resolved")
            assert resolved.evidence.person.by == "ann"
            assert (await client.outcome_of("refused")).verdict is Verdict.REFUSED
            assert (await client.outcome_of("unknown")).verdict is Verdict.UNKNOWN
            assert service.arrivals() == sent

            urls = {
                "released": HOOK["url"],
                **{key: f"https://me.example/{key}" for key in ("sending", "unheard")},
            }
            for key, url in urls.items():
                found = await create(client, key, url=url).outcome()
                assert found.verdict is Verdict.APPLIED, found.explain()
            unsent = create(client, "unsent", url="https://me.example/unsent")
            # It may have been sent, too long ago for a read to show that it was not.
            assert (await unsent.outcome()).verdict is Verdict.UNKNOWN
            await client.resolve("unsent", applied=False, because="seen", by="ben")
            unsent = create(client, "unsent", url="https://me.example/unsent")
            assert (await unsent.outcome()).verdict is Verdict.APPLIED
            [hook] = {each.id for each in await client.webhooks.list()} - targets(
                service
            )
            first, to_do = [
                await client.webhooks.update(hook, description=key).keyed(key).outcome()
                for key in ("first", "to do")
            ]
            assert first.verdict is Verdict.UNKNOWN, first.explain()
            assert to_do.verdict is Verdict.APPLIED, to_do.explain()
            recovered = await client.recover()
            assert [each.verdict for each in recovered] == [Verdict.APPLIED]
            await client.resolve("unknown", applied=True, because="seen", by="ben")

        new = made(service) - before
        assert [url for url, _ in new] == ["https://me.example/unsent"]
        assert set(made(service).values()) == {1}
        assert descriptions(service) == ["to do"]
        assert len(service.ledger.effects("sheets.save_mapping")) == 2
        entries = await open_entries(
            JournalEntries(str(place), options_of(client).core)
        )
        try:
            summary = await summary_of(entries)
            # Those of what was settled by reads are lost, too.
            assert (summary.secrets_lost, summary.to_do, summary.sending) == (3, 0, 0)
            pruned = await entries.prune(LATER, unacknowledged=True)
            assert pruned == summary.done - summary.unknown
        finally:
            await entries.aclose()


def targets(service):
    """Return the webhooks that writes have made."""
    return {each.target for each in service.ledger.effects("webhooks.create")}


async def test_batch(service, tmp_path, which, version):
    """Its input continues; what is done is not done again; counts are those of the entries."""
    async with golden(service, version, "batch", which, tmp_path) as place:
        file = tmp_path / "input.jsonl"
        file.write_text("".join(create_line(number) for number in range(10, 40)))
        async with (
            client_of(service) as client,
            Batch.open(place, client, on_secret=lambda *_: None) as batch,
        ):
            summary = await batch.summary()
            assert (summary.secrets_lost, summary.overtaken) == (1, 1)
            results = await all_of(batch, file)
            assert {each.verdict for each in results} <= {
                Verdict.APPLIED,
                Verdict.NOT_APPLIED,
                Verdict.UNKNOWN,
            }
            sent = service.arrivals("webhooks.create")
            await all_of(batch, creates(client, 3))
            assert service.arrivals("webhooks.create") == sent
            summary = await batch.summary()
            assert (summary.to_do, summary.sending, summary.overtaken) == (0, 0, 1)
            # Of those that the kill cut off, some were not carried out, too long ago for a read to show it.
            cut_off = summary.unknown - 1
            assert cut_off <= 4
            assert len(made(service)) == 33 - cut_off
            assert summary.verdicts[Verdict.APPLIED] == 34 - cut_off
            assert await batch.retry(keys=["older"], force=True) == 1
            await all_of(batch)
            assert (await batch.summary()).overtaken == 0
            store = batch.entries.store
            kept = {tuple(row[:3]): row[3] for row in await store.rows(COUNTED)}
            scan = {tuple(row[:3]): row[3] for row in await store.rows(SCAN)}
            assert {each: many for each, many in kept.items() if many} == scan
            assert await batch.prune(done_before=later()) > 28
        assert set(made(service).values()) == {1}
        assert descriptions(service) == ["newer", "older"]


async def test_outbox(service, tmp_path, which, version):
    """Verdicts that nobody was told are told; writes that wait are sent once, in their order."""
    async with golden(service, version, "outbox", which, tmp_path) as place:
        async with (
            client_of(service) as client,
            Outbox.open(place, client) as outbox,
            outbox.dispatching(),
        ):
            for key in ("sent", "to do", "last"):
                assert (await verdict_of(outbox, key)).verdict is Verdict.APPLIED
            told: dict[str, Verdict] = {}
            async for result in outbox.results():
                told[result.key] = result.verdict
                if len(told) == 6:
                    break
            assert told.pop("unknown") is Verdict.UNKNOWN
            assert {*told} == {"untold", "secret lost", "sent", "to do", "last"}
            assert {*told.values()} == {Verdict.APPLIED}
            assert (await summary_of(outbox._store)).secrets_lost >= 1
            assert await outbox._store.prune(LATER, unacknowledged=True) == 6
        assert set(made(service).values()) == {1}
        assert descriptions(service) == ["told", "untold", "to do", "last"]


async def test_events(tmp_path, which, version):
    """What is known is not handled again; what waits is; the order of a key is kept."""
    async with golden_events(version, which, tmp_path) as place:
        store = store_at(place)
        await store.open()
        for key in ("handled", "kept", "dead", "open", "leased"):
            assert not await store.put(Delivery(key=key, type="x", body=b"{}"))
        states = {each.key: each.state for each in await store.events()}
        assert states["handled"] == states["kept"] == "handled"
        assert states["dead"] == "dead"
        taken = {each.key: each for each in await store.take(limit=9, lease=60)}
        assert {"open", "first"} <= {*taken} <= {"open", "first", "leased"}
        for each in taken.values():
            assert await store.handled(each)
        [second] = await store.take(limit=9, lease=60, handlers=["of one"])
        assert (second.key, second.body) == ("second", b'{"key": "second"}')
        assert await store.handled(second)
        assert await store.prune(older_than=-3600, dead=-3600) >= 5
        await store.close()


@pytest.mark.untraced
@pytest.mark.parametrize("kind", [*KINDS, "events"])
async def test_two_processes_at_once(service, tmp_path, which, version, kind):
    """One brings it up to date, and the other waits, or says that it is in use; then it opens."""
    opens = golden_events(version, which, tmp_path)
    if kind != "events":
        opens = golden(service, version, kind, which, tmp_path)
    async with opens as place:
        said = await asyncio.gather(
            *(started(kind, service, place) for _ in range(2)),
        )
        assert "open" in said
        for words in said:
            assert words == "open" or ("in use" in words and which == "sqlite"), words
        assert await started(kind, service, place) == "open"


async def started(kind, service, place):
    """Open the store in a process of its own; return what that says."""
    command = ["-m", "tests.golden.opening", kind, service.base_url, service.api_key]
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        sys.executable, *command, str(place), stdin=pipe, stdout=pipe
    )
    async with gone_after(child):
        await child.stdout.readline()
        child.stdin.write(b"\n")
        return (await child.stdout.read()).decode().strip()


@pytest.mark.parametrize("kind", KINDS)
async def test_that_is_only_read(service, tmp_path, which, version, kind):
    """It stays as it is, and shows what it has."""
    async with golden(service, version, kind, which, tmp_path) as place:
        async with client_of(service) as client:
            core = options_of(client).core
            if kind == "batch":
                async with opened(place, reading=True) as entries:
                    assert (await summary_of(entries)).secrets_lost == 1
                    found = entries.store.version
            elif kind == "journal":
                entries = JournalEntries(str(place), core, reading=True)
                await entries.open()
                assert (await summary_of(entries)).secrets_lost == 1
                found = entries.store.version
                await entries.aclose()
            else:
                async with Outbox.open(place, client, reading=True) as outbox:
                    assert (await summary_of(outbox._store)).secrets_lost == 1
                    found = outbox._store.store.version
        assert found == 1 + VERSIONS.index(version)
