"""A cache between the client and the service, which may answer a read with the state of before a write."""

from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from invsvc_async import Verdict, readers
from tests.faults.conftest import client_of

pytestmark = pytest.mark.every_python


@asynccontextmanager
async def cache(service):
    """Run a shared cache that keeps each answer to a GET, and yield the base URL behind which it is."""
    kept = {}

    async def pass_on(request):
        if (
            request.method == "GET"
            and request.headers.get("Cache-Control") != "no-cache"
        ):
            found = kept.get(request.path_qs)
            if found is not None:
                return web.Response(body=found, content_type="application/json")
        address = service.base_url.removesuffix("/v2") + request.path_qs
        headers = {
            "Authorization": request.headers["Authorization"],
            "Content-Type": "application/json",
        }
        async with session.request(
            request.method, address, data=await request.read(), headers=headers
        ) as answer:
            body = await answer.read()
        if request.method == "GET":
            kept[request.path_qs] = body
        return web.Response(
            status=answer.status, body=body, content_type="application/json"
        )

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", pass_on)
    async with aiohttp.ClientSession() as session, TestServer(app) as server:
        yield str(server.make_url("/v2"))


@asynccontextmanager
async def client_behind_a_cache(service):
    async with (
        cache(service) as address,
        client_of(service, base_url=address) as client,
    ):
        yield client


async def test_reads_that_settle_pass_a_cache(service):
    """They ask for the present state, so a create that was applied is found, and not sent again."""
    async with client_behind_a_cache(service) as client:
        await client.webhooks.list(limit=100)
        service.script("webhooks.create", "apply, then 503")
        outcome = await client.webhooks.create(
            url="https://me.example/in", events=["invoice.created"]
        ).outcome()

    assert (outcome.verdict, outcome.attempts) == (Verdict.APPLIED, 1)
    assert len(service.ledger.effects("webhooks.create")) == 1


async def test_reads_of_an_own_reader_pass_a_cache(service):
    """The client that a user-supplied reader gets asks for the present state, too."""
    hook = service.seed_webhook(description="before")
    is_applied = readers.get(
        f"/webhooks/{hook.id}", matches=lambda found: found["description"] == "after"
    )
    async with client_behind_a_cache(service) as client:
        await client.webhooks.get(hook.id)
        service.script("webhooks.update", "apply, then 503")
        write = client.write(
            "PUT",
            f"/webhooks/{hook.id}",
            json={"description": "after"},
            reader=is_applied,
        )
        outcome = await write.outcome()

    assert (outcome.verdict, outcome.attempts) == (Verdict.APPLIED, 1)
