"""A proxy that answers a request with the answer to another one, whose effect it may lose."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from invsvc_async import UnreadableResponseError, Verdict
from invsvc_async.api.operations import TABLE
from tests.faults.conftest import client_of
from tests.support.waiting import cancel

pytestmark = pytest.mark.every_python

# what a read settles; a new one needs a row in `things`, and in `write_of`
SETTLED = [row.name for row in TABLE if row.reader is not None]


@asynccontextmanager
async def client_behind(service, answer, **settings):
    """
    Yield a client behind a proxy.

    ``answer(method, ask)`` returns the answer to a request: that of ``ask()``, or of ``ask(path)``, which
    reads another thing instead.
    """

    async def pass_on(request):
        body = await request.read()

        async def ask(path=None):
            asked = (
                (request.method, request.path_qs, body)
                if path is None
                else ("GET", f"/v2{path}", None)
            )
            method, where, content = asked
            url = service.base_url.removesuffix("/v2") + where
            headers = {
                "Authorization": request.headers["Authorization"],
                "Content-Type": "application/json",
            }
            async with session.request(
                method, url, data=content, headers=headers
            ) as found:
                return found.status, await found.read()

        status, content = await answer(request.method, ask)
        return web.Response(
            status=status, body=content, content_type="application/json"
        )

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", pass_on)
    async with (
        TestServer(app) as server,
        aiohttp.ClientSession() as session,
        client_of(service, base_url=str(server.make_url("/v2")), **settings) as client,
    ):
        yield client


def mixing_up(path, *, writes=0, reads=0, lost=0):
    """
    Answer the first *writes* and the first *reads* after a write with what *path* shows.

    The first *lost* writes are answered with a 503 instead. None of these writes has an effect.
    """
    left = {"lost": lost, "writes": writes, "reads": reads}
    written = []

    async def answer(method, ask):
        if method != "GET":
            written.append(method)
            if left["lost"]:
                left["lost"] -= 1
                return 503, b"down"
        kind = "reads" if method == "GET" else "writes"
        if left[kind] and (kind == "writes" or written):
            left[kind] -= 1
            return await ask(path)
        return await ask()

    return answer


def things(service):
    """Seed a webhook and a journey to write to, and others that are as they shall become."""
    hook, other = (
        service.seed_webhook(description="a"),
        service.seed_webhook(description="b"),
    )
    journey, another = service.seed_journey(name="a"), service.seed_journey(name="b")
    return {
        "webhooks.update": (hook.id, f"/webhooks/{other.id}"),
        "webhooks.delete": (hook.id, f"/webhooks/{other.id}"),
        "journeys.update": (journey.id, f"/journeys/{another.id}"),
        "webhooks.create": (None, f"/webhooks/{other.id}"),
    }


async def write_of(client, operation, thing):
    """Make a write, with what its baseline needs."""
    if operation == "journeys.update":
        return client.journeys.update(await client.journeys.get(thing), name="b")
    if operation == "webhooks.update":
        return client.webhooks.update(await client.webhooks.get(thing), description="b")
    if operation == "webhooks.delete":
        return client.webhooks.delete(thing)
    return client.webhooks.create(
        url="https://me.example/in", events=["invoice.created"]
    )


@pytest.mark.parametrize("operation", SETTLED)
async def test_write_that_is_answered_with_another_thing(service, operation):
    """The answer proves nothing, so the state is read, and the write is sent again."""
    thing, path = things(service)[operation]
    async with client_behind(service, mixing_up(path, writes=1)) as client:
        outcome = await (await write_of(client, operation, thing)).outcome()

    effects = [
        entry for entry in service.ledger.effects(operation) if entry.by == "client"
    ]
    assert (outcome.verdict, outcome.attempts, len(effects)) == (Verdict.APPLIED, 2, 1)
    assert outcome.value.id == effects[0].target
    assert thing in (None, outcome.value.id)


@pytest.mark.parametrize("operation", ["webhooks.update", "journeys.update"])
async def test_read_that_settles_and_shows_another_thing(service, operation):
    """It is a failed read: what it shows of the other thing is neither evidence nor the value."""
    thing, path = things(service)[operation]
    async with client_behind(service, mixing_up(path, lost=1, reads=1)) as client:
        outcome = await (await write_of(client, operation, thing)).outcome()

    effects = [
        entry for entry in service.ledger.effects(operation) if entry.by == "client"
    ]
    assert (outcome.verdict, outcome.attempts, len(effects)) == (Verdict.APPLIED, 2, 1)
    assert outcome.value.id == thing


async def test_delete_whose_reads_show_another_webhook(service):
    """That the webhook is still there cannot be concluded."""
    thing, path = things(service)["webhooks.delete"]
    async with client_behind(service, mixing_up(path, lost=1, reads=1000)) as client:
        outcome = await client.webhooks.delete(thing).outcome()

    assert (outcome.verdict, outcome.attempts) == (Verdict.UNKNOWN, 1)


async def test_read_that_shows_another_webhook(service):
    """It is unreadable: a program would change the other one, and its state is no baseline of this one."""
    hook, other = (
        service.seed_webhook(description="a"),
        service.seed_webhook(description="b"),
    )
    mixed = [other.id]

    async def answer(method, ask):
        if method == "PUT" and not mixed:
            mixed.append("lost")
            return 503, b"down"
        return await (ask(f"/webhooks/{mixed.pop()}") if mixed == [other.id] else ask())

    async with client_behind(service, answer) as client:
        with pytest.raises(UnreadableResponseError, match=other.id):
            await client.webhooks.get(hook.id)
        outcome = await client.webhooks.update(hook.id, description="c").outcome()

    assert (outcome.verdict, outcome.attempts) == (Verdict.APPLIED, 2)


async def test_create_that_gets_the_answer_to_the_create_before(service):
    """A webhook that another create of this client was answered with is not its own."""
    kept = []

    async def answer(method, ask):
        if method == "POST" and len(kept) == 1:
            kept.append(kept[0])  # it goes no further
            return kept[0]
        found = await ask()
        if method == "POST":
            kept.append(found)
        return found

    async with client_behind(service, answer) as client:
        first = await client.webhooks.create(
            url="https://me.example/1", events=["invoice.created"]
        )
        outcome = await client.webhooks.create(
            url="https://me.example/2", events=["invoice.created"]
        ).outcome()

    effects = [
        entry
        for entry in service.ledger.effects("webhooks.create")
        if entry.by == "client"
    ]
    assert (outcome.verdict, outcome.attempts, len(effects)) == (Verdict.APPLIED, 2, 2)
    assert [first.id, outcome.value.id] == [entry.target for entry in effects]


@pytest.mark.parametrize("is_keyed", [False, True])
async def test_raw_create_that_is_answered_with_the_webhook_of_another(
    service, tmp_path, is_keyed
):
    """It has not made that webhook, whose create is in doubt: that one is not sent again."""
    mixed = []

    async def answer(method, ask):
        if method == "POST" and mixed:
            return await ask(f"/webhooks/{mixed.pop()}")
        return await ask()

    settings = {"journal": tmp_path / "calls.db"} if is_keyed else {}
    async with client_behind(service, answer, **settings) as client:
        await client.webhooks.list()
        service.script("webhooks.create", "apply, then hang")
        body = {"url": "https://me.example/1", "events": ["invoice.created"]}
        first = client.webhooks.create(**body, tag=False)
        raw = client.write(
            "POST", "/webhooks", json={**body, "url": "https://me.example/2"}
        )
        if is_keyed:
            first, raw = first.keyed("first"), raw.keyed("raw")
        running = asyncio.create_task(first.outcome())
        await service.arrived("webhooks.create", 1)
        await cancel(running)
        [made] = service.ledger.effects("webhooks.create")
        mixed.append(made.target)
        assert (await raw)["id"] == made.target
        outcome = await first.outcome()
    assert outcome.verdict is Verdict.APPLIED, outcome.explain()
    assert len(service.ledger.effects("webhooks.create")) == 1
