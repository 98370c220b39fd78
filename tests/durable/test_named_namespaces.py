"""A named namespace has the keys of all teams and base URLs together: each key is of one of them."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import (
    JournalError,
    KeyConflictError,
    OAuthToken,
    TokenProvider,
    Verdict,
)
from invsvc_async.durable.entries import Entries
from invsvc_async.simulator import Simulator
from tests.batch.conftest import client_of
from tests.durable.test_key_teams import older
from tests.durable.test_keys import named
from tests.durable.writing import create, cut_off
from tests.support.inside import store_beneath

TEAMS = ("team_1", "team_2")


@pytest.fixture
def billing(address):
    """Return the address of a journal whose keys have the namespace ``billing``."""
    return named(address, "namespace=billing")


def provider_of(service):
    """Return a provider of the API key of *service*, which shows its team once it is fetched."""

    async def token():
        return service.api_key

    return TokenProvider(token, kind="api_key")


def opener_of(service, journal):
    """Return a function that opens a client of *service* with *journal*."""

    def opened(**settings):
        settings = {"journal": journal, "on_secret": lambda *_: None, **settings}
        return client_of(service, **settings)

    return opened


@pytest.fixture
def opened(service, billing):
    return opener_of(service, billing)


def sent_for(service):
    """Return the teams for which the service has made a webhook."""
    return [entry.team for entry in service.ledger.effects("webhooks.create")]


async def refused(client, team, what="another team", **changes):
    """Run the write for *team*; it must be refused, because the key has a write of *what*."""
    with pytest.raises(KeyConflictError, match=f"with {what}.*Nothing was sent"):
        await create(client, team=team, **changes).outcome()


async def test_key_of_another_team(service, opened):
    """It is refused, in the process of the first run and in the next; the first team's is replayed."""
    for _ in range(2):
        async with opened() as client:
            assert (await create(client, team="team_1").outcome()).applied
            await refused(client, "team_2")
            assert (await create(client, team="team_1").outcome()).replayed
    assert sent_for(service) == ["team_1"]
    assert service.arrivals("webhooks.create") == 1


async def test_key_of_another_team_and_another_body(opened):
    """The error names all that differs; a body that need not match does not make it the same write."""
    other = {"description": "other"}
    async with opened() as client:
        await create(client, team="team_1")
        await refused(client, "team_2", "another team, body.description", **other)
        write = client.webhooks.create(
            url="https://me.example/in", events=["invoice.failed"], team="team_2"
        )
        with pytest.raises(KeyConflictError, match="with another team"):
            await write.keyed("k", match="operation").outcome()


async def test_key_of_another_team_at_the_same_time(service, opened):
    """One of two runs in a process has the key, and the other one is refused."""
    async with opened() as client:
        found = await asyncio.gather(
            *(create(client, team=team).outcome() for team in TEAMS),
            return_exceptions=True,
        )
    assert found[0].applied
    assert isinstance(found[1], KeyConflictError)
    assert sent_for(service) == ["team_1"]


async def test_key_in_doubt_of_another_team(service, opened):
    """Only a run for its own team goes on with it."""
    service.script("webhooks.create", "hang")
    async with opened() as client:
        await cut_off(service, create(client, team="team_2"))
    async with opened() as client:
        await refused(client, "team_1")
        assert sent_for(service) == []
        assert (await create(client, team="team_2").outcome()).applied
    assert sent_for(service) == ["team_2"]


async def test_key_that_was_refused_for_another_team(service, opened):
    """Nothing happened under it, and only its own team does it anew."""
    service.script("webhooks.create", "409")
    async with opened() as client:
        first = await create(client, team="team_2").outcome()
        assert first.verdict is Verdict.REFUSED
        await refused(client, "team_1")
        assert (await create(client, team="team_2").outcome()).applied
    assert sent_for(service) == ["team_2"]


async def test_key_of_another_base_url(service, tmp_path):
    """It is refused there, and nothing is sent; a database has a journal for each base URL."""
    billing = f"{tmp_path / 'calls.db'}?namespace=billing"
    async with opener_of(service, billing)() as client:
        await create(client, team="team_1")
    async with Simulator(seed=2) as staging:
        async with opener_of(staging, billing)() as client:
            await refused(client, "team_1", "another base URL")
            with pytest.raises(KeyConflictError, match="another base URL"):
                await client.for_team("team_1").forget("k")
        assert sent_for(staging) == []
    assert sent_for(service) == ["team_1"]


async def test_what_is_asked_about_a_key_of_another_team(service, opened):
    """Neither is its outcome told, nor is it deleted or resolved; its own team may do all of that."""
    service.script("webhooks.create", "apply, then hang")
    async with opened() as client:
        first, second = map(client.for_team, TEAMS)
        await cut_off(service, create(client, team="team_1"))
        for asked in (
            second.outcome_of("k"),
            second.forget("k"),
            second.resolve("k", applied="wh_9", because="seen"),
        ):
            with pytest.raises(KeyConflictError, match=r"team.*for_team\('team_1'\)"):
                await asked
        assert await first.outcome_of("k") is None
        [made] = service.ledger.effects("webhooks.create")
        assert (await create(client, team="team_1").outcome()).value.id == made.target
        for asked in (second.outcome_of("k"), second.forget("k")):
            with pytest.raises(KeyConflictError, match="team"):
                await asked
        assert (await first.outcome_of("k")).value.id == made.target
        assert await first.forget("k")
        assert not await second.forget("k")
    assert sent_for(service) == ["team_1"]


async def test_key_that_is_forgotten_meanwhile(service, opened, monkeypatch):
    """It is another team's by the time that one forgets it, and stays."""
    drop = Entries.drop
    async with opened() as client:
        first, second = map(client.for_team, TEAMS)

        async def late(*given, **settings):
            monkeypatch.setattr(Entries, "drop", drop)  # reaches: as it was
            assert await first.forget("k")
            await create(client, team="team_2")
            return await drop(*given, **settings)

        await create(client, team="team_1")
        # reaches: nothing else comes between
        monkeypatch.setattr(Entries, "drop", late)
        with pytest.raises(KeyConflictError, match="another team"):
            await first.forget("k")
        assert (await second.outcome_of("k")).applied
    assert sent_for(service) == [*TEAMS]


async def test_intent_whose_key_another_team_has(service, opened, address):
    """What became of it is found by reads, and is not the verdict of the other team's write."""
    service.script("webhooks.create", "hang")
    crm = opener_of(service, named(address, "namespace=crm"))
    async with crm() as client:
        await cut_off(service, create(client, team="team_2"))
        [intent] = client.unsettled
    async with opened() as client:
        assert (await create(client, team="team_1").outcome()).applied
        settled = await client.settle(intent)
    assert settled.verdict is Verdict.NOT_APPLIED
    assert sent_for(service) == ["team_1"]


@pytest.mark.parametrize("kind", ["key", "provider"])
@pytest.mark.parametrize("named_first", [True, False])
async def test_own_team_by_its_name_and_without(service, opened, kind, named_first):
    """They are one team, also before a provider has fetched a token that says so."""
    teams = [service.team, None] if named_first else [None, service.team]
    for team in teams:
        settings = {"credential": provider_of(service)} if kind == "provider" else {}
        async with opened(**settings) as client:
            outcome = await create(client, team=team).outcome()
            assert outcome.replayed == (team is teams[1])
            view = client if team is None else client.for_team(team)
            assert (await view.outcome_of("k")).applied
    assert service.arrivals("webhooks.create") == 1


@pytest.mark.parametrize("named_first", [True, False])
async def test_token_that_does_not_say_its_team(service, opened, named_first):
    """Then a write with a team may be another one than without: it is refused, and the error says why."""
    teams = [service.team, None] if named_first else [None, service.team]
    token = OAuthToken(service.issue_oauth_token())
    async with opened(credential=token) as client:
        await create(client, team=teams[0])
        with pytest.raises(
            KeyConflictError, match=r"team \(perhaps\).*always pass team=…, or never"
        ):
            await create(client, team=teams[1])
        assert (await create(client, team=teams[0]).outcome()).replayed
    assert service.arrivals("webhooks.create") == 1


@pytest.mark.parametrize("named_first", [True, False])
async def test_key_of_a_team_beside_the_own_team(service, opened, named_first):
    """A write without a team is of the own one, whose name the token says: another team has another key."""
    teams = ["team_2", None] if named_first else [None, "team_2"]
    async with opened() as client:
        await create(client, team=teams[0])
        with pytest.raises(KeyConflictError, match=r"with another team\. "):
            await create(client, team=teams[1])
    assert sent_for(service) == [teams[0] or service.team]


async def test_teams_in_a_namespace_without_a_name(service, address):
    """It is of one team: a token that does not say its team finds what was stored for the team by its name."""
    async with client_of(service, journal=address) as client:
        with older():
            await create(client)
        assert (await create(client, "new", team=service.team).outcome()).applied
    token = OAuthToken(service.issue_oauth_token())
    same_mode = named(address, "same_mode=true")
    async with client_of(service, journal=same_mode, credential=token) as client:
        assert (await create(client, "new").outcome()).replayed
        assert (await client.outcome_of("new")).applied
    assert service.arrivals("webhooks.create") == 2


@pytest.mark.parametrize("query", ["same_mode=true", "namespace=billing"])
async def test_key_of_which_the_team_cannot_be_read(service, address, query):
    """It is only forgotten where it can be of no other team."""
    journal = named(address, query)
    async with client_of(service, journal=journal) as client:
        await create(client)
        store = store_beneath(client)
        await store.idle()
        text = "UPDATE {s}commons SET text = replace(text, $1, $2)"
        await store.rows(text, '"base_url"', '"of_tomorrow"')
    async with client_of(service, journal=journal) as client:
        if query == "same_mode=true":
            assert await client.forget("k")
        else:
            with pytest.raises(JournalError, match="cannot be read"):
                await client.forget("k")
