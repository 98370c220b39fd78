"""The credential's own team under its name and without: one key, also in the stores of the version before."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from invsvc_async import ApiKey, OAuthToken
from invsvc_async.transport.credentials import Credential
from tests.batch.conftest import client_of
from tests.durable.writing import create

pytestmark = pytest.mark.one_python

URLS = [f"https://me.example/{number}" for number in range(3)]


@contextmanager
def older():
    """Let a block behave as the version before, to which a token said nothing of its team."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Credential, "team", None)
        yield


@pytest.mark.parametrize("named_first", [True, False])
async def test_own_team_by_its_name_and_without(service, address, named_first):
    """The same key is one write, in one process and in the next."""
    teams = [service.team, None] if named_first else [None, service.team]
    for _ in range(2):
        async with client_of(service, journal=address) as client:
            outcomes = [await create(client, team=team).outcome() for team in teams]
            assert outcomes[1].replayed
            assert (await client.for_team(service.team).outcome_of("k")).replayed
    assert service.arrivals("webhooks.create") == 1


async def test_another_team_has_keys_of_its_own(service, address):
    """Its name is not that in the token."""
    async with client_of(service, journal=address) as client:
        await create(client)
        assert not (await create(client, team="team_2").outcome()).replayed


@pytest.mark.parametrize("first", ["named", "unnamed"])
async def test_keys_of_the_version_before(service, address, first):
    """They are found under both names, and new ones are where that version looks for them."""
    old, other = (service.team, None) if first == "named" else (None, service.team)
    with older():
        async with client_of(service, journal=address) as client:
            await create(client, "old", url=URLS[0], team=old)
    async with client_of(service, journal=address) as client:
        for team in (other, old):
            assert (
                await create(client, "old", url=URLS[0], team=team).outcome()
            ).replayed
        await create(client, "new", url=URLS[1], team=other)
    with older():
        async with client_of(service, journal=address) as client:
            assert (
                await create(client, "new", url=URLS[1], team=old).outcome()
            ).replayed
    assert service.arrivals("webhooks.create") == 2


async def test_keys_of_the_version_before_under_both_names(service, address):
    """Each is found where it is, and a new one is where that version looks for its name."""
    teams = {"named": service.team, "unnamed": None}
    with older():
        async with client_of(service, journal=address) as client:
            for number, (key, team) in enumerate(teams.items()):
                await create(client, key, url=URLS[number], team=team)
    async with client_of(service, journal=address) as client:
        for team in teams.values():
            for number, key in enumerate(teams):
                assert (
                    await create(client, key, url=URLS[number], team=team).outcome()
                ).replayed
        await create(client, "new", url=URLS[2], team=service.team)
        assert (await create(client, "new", url=URLS[2]).outcome()).replayed
    with older():
        async with client_of(service, journal=address) as client:
            assert (
                await create(client, "new", url=URLS[2], team=service.team).outcome()
            ).replayed
    assert service.arrivals("webhooks.create") == 3


async def test_new_key_under_both_names_at_once(service, address):
    """It is one write, although the version before has stored keys under both names."""
    clients = 1 if isinstance(address, Path) else 2  # one process has a file
    teams = service.team, None
    settings = {"journal": address, "on_secret": lambda *_: None}
    with older():
        async with client_of(service, **settings) as client:
            for number, team in enumerate(teams):
                await create(client, f"old{number}", url=URLS[number], team=team)
    async with AsyncExitStack() as stack:
        made = [
            await stack.enter_async_context(client_of(service, **settings))
            for _ in range(clients)
        ]
        runners = [*zip((made[0], made[-1]), teams, strict=True)]
        for client, team in runners:
            await client.for_team(team).outcome_of("old0")
        for _ in range(2):
            outcomes = await asyncio.gather(
                *(
                    create(client, "new", url=URLS[2], team=team).outcome()
                    for client, team in runners
                )
            )
            assert len({outcome.value.id for outcome in outcomes}) == 1
    assert service.arrivals("webhooks.create") == 3


async def test_both_names_where_the_token_does_not_say_its_team(
    service, address, caplog
):
    """They are two keys, and one warning says so."""
    token = OAuthToken(service.issue_oauth_token())
    async with client_of(
        service, journal=address, credential=token, on_secret=lambda *_: None
    ) as client:
        await create(client)
        assert caplog.records == []
        for number in (1, 2):
            await create(client, f"k{number}", url=URLS[number], team=service.team)
    assert ["with team=" in record.message for record in caplog.records] == [True]


@pytest.mark.parametrize(
    "token",
    ["opaque", "a.b.c", "e30.e30.x", "e30.W10.x", "e30.eyJ0ZWFtIjo1fQ.x", "e30.____.x"],
)
def test_token_that_names_no_team(token):
    """It is no JWT, or has no such claim."""
    assert ApiKey(token).team is None


def test_token_that_names_its_team():
    """As each API key does."""
    assert ApiKey("e30.eyJ0ZWFtIjoidGVhbV8xIn0.x").team == "team_1"
