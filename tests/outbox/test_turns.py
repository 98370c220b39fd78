"""Teams that have writes in one outbox take turns, and the writes of each thing keep their order."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from invsvc_async import ConfigurationError, Outbox, Verdict
from invsvc_async.batch.team_turns import ReadyItems, in_turns
from invsvc_async.durable.store.team_turns import next_of_teams, teams_after
from tests.batch.conftest import client_of
from tests.outbox.conftest import enqueue, verdict_of, verdicts_of, written
from tests.support.children import gone_after
from tests.support.inside import outbox_entries

pytestmark = pytest.mark.one_python

MANY = 300  # of one team in front
CROWD = 2_000  # the same, where none of them needs to be sent


def creates(client, team, many, *, first=0):
    """Return creates of webhooks for *team*, whose URLs say which they are."""
    view = client if team is None else client.for_team(team)
    return [
        view.webhooks.create(
            url=f"https://{team}.example/{number}", events=["invoice.created"]
        )
        for number in range(first, first + many)
    ]


def teams_in(service):
    """Return the host of each new webhook, in the order of the effects."""
    effects = service.ledger.effects()
    return [each.body["url"].split("/")[2].partition(".")[0] for each in effects]


async def test_only_write_of_another_team(service, place, monkeypatch):
    """It is sent among the first, however many writes of other teams are in front."""
    # reaches: on a slow machine, a look while the dispatcher waits would find it, too
    monkeypatch.setattr("invsvc_async.batch.dispatcher._LOOK_FOR_TEAMS", 600.0)
    async with (
        client_of(service) as client,
        Outbox.open(place, client, concurrency=10) as outbox,
    ):
        [*_, key] = await enqueue(
            outbox, *creates(client, "team_1", CROWD), *creates(client, "team_2", 1)
        )
        if "://" not in str(place):  # rows of a file take turns once they were moved
            while (await outbox_entries(outbox).move()).many:
                pass
        async with outbox.dispatching(grace=0.0):
            await verdict_of(outbox, key)
            assert "team_2" in teams_in(service)[:20]


@pytest.mark.slow
@pytest.mark.silence(2)
async def test_worker_that_is_killed(service, place, monkeypatch):
    """The next one sends another team's only write among its first, and each thing keeps its order."""
    # reaches: a look while the dispatcher waits would find it, too
    monkeypatch.setattr("invsvc_async.batch.dispatcher._LOOK_FOR_TEAMS", 600.0)
    hooks = [service.seed_webhook().id for _ in range(4)]
    async with client_of(service) as client:
        views = [client, client.for_team(service.team)]
        writes = [
            views[at % 2].webhooks.update(hook, description=f"{at}")
            for at in range(10)
            for hook in hooks
        ]
        async with Outbox.open(place, client) as outbox:
            keys = await enqueue(outbox, *writes, *creates(client, "team_1", CROWD))
        service.latency = 0.02
        async with _working(service, place) as worker:
            await service.arrived("webhooks.update", 12)
            worker.kill()  # SIGKILL
            await worker.wait()
        async with Outbox.open(place, client, concurrency=4) as outbox:
            [key] = await enqueue(outbox, *creates(client, "team_2", 1))
            sent = len(service.ledger.entries)
            async with outbox.dispatching(grace=0.0):
                await verdict_of(outbox, key)
                first = [each for each in service.ledger.entries[sent:] if each.body]
                bodies = [str(each.body) for each in first]
                assert "team_2" in "".join(bodies[:20])
                service.latency = 0.0
                verdicts = await verdicts_of(outbox, keys[: len(writes)])
    assert {*verdicts} == {Verdict.APPLIED}
    for hook in hooks:
        assert written(service.ledger.effects(), hook) == [f"{at}" for at in range(10)]


@asynccontextmanager
async def _working(service, place):
    """Yield a process that sends what is committed to the outbox at *place*."""
    command = ["-m", "invsvc_async.cli", "outbox", "work", str(place), "--no-secrets"]
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        "--concurrency=4",
        env=os.environ
        | {"INVSVC_BASE_URL": service.base_url, "INVSVC_API_KEY": service.api_key},
    )
    async with gone_after(child):
        yield child


async def test_write_that_is_enqueued_later(service, place, monkeypatch):
    """It does not wait for those that were read before it."""
    # reaches: a look while the dispatcher waits would find it, too
    monkeypatch.setattr("invsvc_async.batch.dispatcher._LOOK_FOR_TEAMS", 600.0)
    async with (
        client_of(service) as client,
        Outbox.open(place, client, concurrency=4) as outbox,
    ):
        await enqueue(outbox, *creates(client, "team_1", MANY))
        service.latency = (
            0.2  # 20 writes a second: one read of the store lasts for 10 s
        )
        async with outbox.dispatching(grace=0.0):
            await service.arrived("webhooks.create", 10)
            [key] = await enqueue(outbox, *creates(client, "team_2", 1))
            before = service.arrivals("webhooks.create")
            await verdict_of(outbox, key)
            assert service.arrivals("webhooks.create") - before < 60


async def test_equal_turns(service, place):
    """Two teams with as many writes each have about as many done at any time; no team is one, too."""
    async with (
        client_of(service) as client,
        Outbox.open(place, client, concurrency=4) as outbox,
    ):
        keys = await enqueue(
            outbox, *creates(client, "team_1", 60), *creates(client, None, 60)
        )
        async with outbox.dispatching():
            await verdicts_of(outbox, keys)
    assert 15 <= teams_in(service)[:60].count("team_1") <= 45
    assert len(teams_in(service)) == 120


async def test_one_thing_of_several_teams(service, place):
    """Its writes are sent in the order of their commits, whoever's turn it is."""
    hook = service.seed_webhook().id
    async with (
        client_of(service) as client,
        Outbox.open(place, client, concurrency=4) as outbox,
    ):
        own = client.for_team(service.team)  # which is also that of no name
        views = [own, own, client, own, client, client]
        writes = [
            view.webhooks.update(hook, description=f"{at}")
            for at, view in enumerate(views)
        ]
        mixed = creates(client, service.team, 20)
        for at, write in enumerate(writes):
            mixed.insert(3 * at, write)
        keys = await enqueue(outbox, *mixed, *creates(client, None, 20))
        async with outbox.dispatching():
            assert {*await verdicts_of(outbox, keys)} == {Verdict.APPLIED}
    updates = [
        each for each in service.ledger.effects() if each.operation == "webhooks.update"
    ]
    assert written(updates) == [f"{at}" for at in range(len(views))]


async def test_writes_of_one_team_that_hang(service, place):
    """With per_team, no more than so many of them are under way, and another team does not wait for them."""
    hooks = [service.seed_webhook().id for _ in range(6)]
    service.script("webhooks.update", *["hang"] * 6)
    async with (
        client_of(service) as client,
        Outbox.open(place, client, concurrency=4, per_team=2) as outbox,
    ):
        own = client.for_team("team_1")
        await enqueue(
            outbox, *(own.webhooks.update(hook, description="x") for hook in hooks)
        )
        async with outbox.dispatching(grace=0.0):
            await service.arrived("webhooks.update", 2)
            keys = await enqueue(outbox, *creates(client, "team_2", 3))
            await verdicts_of(outbox, keys)
            assert service.arrivals("webhooks.update") == 2


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True])
def test_per_team_that_cannot_be(client, tmp_path, wrong):
    """It is refused in words."""
    with pytest.raises(ConfigurationError, match="per_team"):
        Outbox.open(tmp_path / "app.db", client, per_team=wrong)


async def test_cut_off_during_the_turn_of_another_team(service, place):
    """What was under way is settled, nothing is lost or done twice, and the next run keeps the order."""
    hooks = [service.seed_webhook().id for _ in range(3)]
    async with client_of(service) as client:
        views = [client, client.for_team(service.team)]
        writes = [
            views[at % 2].webhooks.update(hook, description=f"{at}")
            for at in range(8)
            for hook in hooks
        ]
        service.script("webhooks.update", *["pass"] * 5, *["apply, then hang"] * 3)
        async with Outbox.open(place, client, concurrency=3) as outbox:
            keys = await enqueue(outbox, *writes)
            async with outbox.dispatching(grace=0.0):
                await service.arrived("webhooks.update", 8)
            async with outbox.dispatching():
                assert {*await verdicts_of(outbox, keys)} == {Verdict.APPLIED}
    effects = service.ledger.effects()
    for hook in hooks:
        assert written(effects, hook) == [f"{at}" for at in range(8)]


def item_of(team, thing=None, number=0):
    """Return what turns look at in an item."""
    scope = SimpleNamespace(team=team)
    entry = SimpleNamespace(thing=thing, place=number)
    return SimpleNamespace(entry=entry, intent=SimpleNamespace(scope=scope))


def test_turns_of_what_was_read():
    """One of each team, then the next; the writes of one thing stay in their order, whatever their teams."""
    read = [
        item_of("a", None, 1),
        item_of("a", "thing", 2),
        item_of("a", "thing", 3),
        item_of("b", "thing", 4),
        item_of("b", None, 5),
        item_of(None, None, 6),
    ]

    assert [each.entry.place for each in in_turns(read)] == [1, 5, 6, 2, 3, 4]


def test_items_that_are_ready():
    """Teams take turns; one with as many under way as it may have waits, and one that was put back comes first."""
    ready = ReadyItems(2)
    items = [item_of("a"), item_of("a"), item_of("a"), item_of("b")]
    for each in items:
        ready.append(each)
    taken = []
    while (first := ready.first()) is not None:
        ready.take(first)
        taken.append(first)

    assert taken == [items[0], items[3], items[1]]
    assert (len(ready), ready.startable, ready.active("a")) == (1, 0, 3)
    ready.end(items[1])
    assert (ready.first(), ready.startable) == (items[2], 1)
    ready.end(items[0])
    ready.append_first(items[0])
    assert ready.first() is items[0]


async def test_per_team_goes_on(service, place):
    """Once a write has ended, the next one of its team is sent."""
    async with (
        client_of(service) as client,
        Outbox.open(place, client, concurrency=4, per_team=1) as outbox,
    ):
        keys = await enqueue(outbox, *creates(client, "team_1", 8))
        async with outbox.dispatching():
            assert {*await verdicts_of(outbox, keys)} == {Verdict.APPLIED}


async def test_next_writes_of_teams(service, place):
    """Of a thing only the first open one, if it is not held; of each team no more than are wanted."""
    hook = service.seed_webhook().id
    async with client_of(service) as client, Outbox.open(place, client) as outbox:
        own = client.for_team(service.team)
        changes = [
            view.webhooks.update(hook, description="x").keyed(f"{at}")
            for at, view in enumerate((client, own, client))
        ]
        more = creates(client, service.team, 2)
        await enqueue(outbox, *changes, *more)
        entries = outbox_entries(outbox)
        if place.__class__ is not str:
            await entries.move()
        store, lanes = entries.store, range(1, entries.lanes + 1)
        assert await teams_after(store, None, 5) == ["", service.team]
        assert await teams_after(store, "", 5) == [service.team, ""]
        wanted = {"": 3, service.team: 3}
        found = await next_of_teams(store, wanted, lanes, ())
        assert [each.thing is not None for each in found] == [True, False, False]
        held = [found[0].seq, found[1].seq]
        rest = await next_of_teams(store, wanted, lanes, held)
        assert [each.seq for each in rest] == [found[2].seq]


async def test_writes_to_one_thing_in_front_of_a_team(service, place):
    """They wait for the first of them, which is under way; the team's other writes do not."""
    hook = service.seed_webhook().id
    async with client_of(service) as client, Outbox.open(place, client) as outbox:
        changes = [
            client.webhooks.update(hook, description="x").keyed(f"{at}")
            for at in range(9)
        ]
        await enqueue(outbox, *changes, *creates(client, None, 3))
        entries = outbox_entries(outbox)
        if place.__class__ is not str:
            await entries.move()
        store, lanes = entries.store, range(1, entries.lanes + 1)
        [first] = await next_of_teams(store, {"": 1}, lanes, ())
        found = await next_of_teams(store, {"": 2}, lanes, [first.seq])
        assert [each.operation for each in found] == ["webhooks.create"] * 2
