"""One thing under several names: writes to it are sent in the order in which they started, by whatever name."""

from __future__ import annotations

import asyncio

import pytest

from invsvc_async import Absent, ApiKey, OAuthToken, TokenProvider, Verdict
from invsvc_async.batch import Batch
from invsvc_async.client import options_of
from invsvc_async.writes.line_names import line_of
from tests.batch.conftest import HOOK, client_of
from tests.support.waiting import cancel

pytestmark = pytest.mark.one_python

OLDER, NEWER = {"amount": "older"}, {"amount": "newer"}


def by_method(client, fields, **more):
    return client.sheets.save_mapping(fields, **more)


def raw(client, fields, path="/sheets/mapping", **more):
    return client.write("PUT", path, json={"fields": fields}, **more)


WAYS = {
    "method": by_method,
    "method, own team": lambda *of: by_method(*of, team="team_1"),
    "raw": raw,
    "raw, own team": lambda *of: raw(*of, team="team_1"),
    "raw, quoted": lambda *of: raw(*of, path="/sheets/m%61pping"),
}
PAIRS = [
    ("method", "method, own team"),
    ("method, own team", "method"),
    ("method", "raw"),
    ("raw", "method, own team"),
    ("raw, own team", "raw"),
    ("method", "raw, quoted"),
]
STORED = PAIRS[1:4]  # what is tried with a journal takes longer


def keyed(write, key):
    return write if key is None else write.keyed(key)


def saved(service):
    """Return the mappings that were saved, in the order of the effects."""
    effects = sorted(
        service.ledger.effects("sheets.save_mapping"),
        key=lambda entry: entry.applied_at,
    )
    return [entry.body["fields"]["amount"] for entry in effects]


async def absent(*_):
    """Read that there is no effect."""
    return Absent()


async def lost(service, operation, write):
    """Cancel *write* once its request has arrived, which has no effect."""
    service.script(operation, "hang")
    running = asyncio.create_task(write.outcome())
    await service.arrived(operation)
    await cancel(running)


async def in_turn(service, older, newer):
    """Await *older* and *newer*, which is begun once the other one has arrived; return their outcomes."""
    running = asyncio.create_task(older.outcome())
    await service.arrived("sheets.save_mapping")
    return [await newer.outcome(), await running]


@pytest.mark.parametrize("keys", [("older", "newer"), ("older", None), (None, "newer")])
@pytest.mark.parametrize(("first", "second"), STORED)
async def test_newer_write_under_another_name(service, address, first, second, keys):
    """It is sent once the older one has ended."""
    service.script("sheets.save_mapping", "slow 0.3")
    async with client_of(service, journal=address) as client:
        older = keyed(WAYS[first](client, OLDER), keys[0])
        newer = keyed(WAYS[second](client, NEWER), keys[1])
        outcomes = await in_turn(service, older, newer)
    assert all(outcome.applied for outcome in outcomes)
    assert saved(service) == ["older", "newer"]


@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_newer_write_without_a_journal(service, client, first, second):
    """It is the same client, and keeps its order in memory."""
    service.script("sheets.save_mapping", "slow 0.3")
    await in_turn(service, WAYS[first](client, OLDER), WAYS[second](client, NEWER))
    assert saved(service) == ["older", "newer"]


@pytest.mark.parametrize("is_keyed", [True, False])
@pytest.mark.parametrize(("first", "second"), STORED)
async def test_older_write_after_a_newer_one_under_another_name(
    service, address, first, second, is_keyed
):
    """It had no effect, as its reader shows, and is not sent again over the newer one."""
    async with client_of(service, journal=address) as client:
        older = keyed(WAYS[first](client, OLDER), "older" if is_keyed else None)
        await lost(service, "sheets.save_mapping", older)
        [left] = client.unsettled
        newer = keyed(WAYS[second](client, NEWER), "newer" if is_keyed else None)
        assert (await newer.outcome()).applied
        again = await client.resume(left, reader=absent).outcome()
    assert again.verdict is not Verdict.APPLIED
    assert saved(service) == ["newer"]


async def test_batch_of_writes_under_several_names(service, client, tmp_path):
    """Its order is stored with the things."""
    service.script("sheets.save_mapping", "slow 0.3")
    writes = [way(client, {"amount": name}) for name, way in WAYS.items()]
    async with Batch.open(tmp_path / "run.db", client, concurrency=10) as batch:
        results = [result async for result in batch.run(writes)]
    assert all(result.applied for result in results)
    assert saved(service) == [*WAYS]


def lines_of(client, **more):
    """Return the lines of a write with, and of one without, *more*."""
    writes = [by_method(client, NEWER, **more), by_method(client, NEWER)]
    for write in writes:
        write.close()
    core = options_of(client).core
    # reaches: the request of a write that is not sent
    return [line_of(core, write._spec.request, None) for write in writes]


async def test_name_without_a_team_is_that_of_earlier_versions(client):
    """Journals have it; those of other teams as well."""
    assert lines_of(client, team="team_1") == ["/sheets/mapping None"] * 2
    assert lines_of(client, team="team_2") == [
        "/sheets/mapping team_2",
        "/sheets/mapping None",
    ]


async def test_other_team_does_not_wait(service, client):
    """Its mapping is another thing."""
    service.script("sheets.save_mapping", "hang", "404")
    older = asyncio.create_task(by_method(client, OLDER).outcome())
    await service.arrived("sheets.save_mapping")
    other = await by_method(client, NEWER, team="team_2").outcome()
    assert other.verdict is Verdict.REFUSED
    assert not older.done()
    await cancel(older)


@pytest.mark.parametrize(
    ("credential", "many"),
    [
        (lambda service: OAuthToken(service.issue_oauth_token()), 1),
        (lambda service: provider_of(service.issue_oauth_token(), "oauth_token"), 1),
        (lambda service: provider_of(service.api_key, "api_key"), 2),
        (lambda _: ApiKey("names.no.team"), 2),
    ],
)
async def test_token_that_does_not_say_its_team(service, caplog, credential, many):
    """One that acts for its own team only has one line all the same. Of another, a warning tells once."""
    async with client_of(service, credential=credential(service)) as client:
        for _ in range(2):
            assert len({*lines_of(client, team="team_1")}) == many
    told = [record.message for record in caplog.records]
    assert ["they may be sent in any order" in each for each in told] == [True] * (
        many - 1
    )


def provider_of(token, kind):
    async def source():
        return token

    return TokenProvider(source, kind=kind)


async def test_token_that_was_fetched_changes_no_name(service, caplog):
    """Else writes before and after the first request would have two."""
    credential = provider_of(service.api_key, "api_key")
    async with client_of(service, credential=credential) as client:
        before = lines_of(client, team="team_1")
        await client.webhooks.list()
        assert lines_of(client, team="team_1") == before


# --- creates


def create(client):
    return client.webhooks.create(**HOOK, tag=False, on_lost_secret="keep")


def raw_create(client, path="/webhooks"):
    return client.write("POST", path, json=HOOK)


@pytest.mark.parametrize("path", ["/webhooks", "/w%65bhooks"])
@pytest.mark.parametrize("is_keyed", [True, False])
async def test_raw_create_beside_one_that_is_in_doubt(service, address, is_keyed, path):
    """What it makes is not taken for what the other one has made."""
    keys = ("k", "raw") if is_keyed else (None, None)
    service.script("webhooks.create", "reset", "pass")
    async with client_of(service, journal=address, on_secret=lambda *_: None) as client:
        await client.webhooks.list()
        running = asyncio.create_task(keyed(create(client), keys[0]).outcome())
        await service.arrived("webhooks.create")
        raw_one = await keyed(raw_create(client, path), keys[1]).outcome()
        made = await running
    assert made.applied
    ids = [entry.target for entry in service.ledger.effects("webhooks.create")]
    assert ids == [made.value.id, raw_one.value["id"]]


async def test_create_beside_a_raw_one_that_may_still_land(service, client):
    """It waits until the other one can have no effect any more."""
    await client.webhooks.list()
    service.script("webhooks.create", "late 0.1, then reset", "reset")
    assert (await raw_create(client).outcome()).verdict is Verdict.UNKNOWN
    made = await create(client).outcome()
    first, second = service.ledger.effects("webhooks.create")
    assert (made.applied, made.value.id) == (True, second.target)
    assert first.target != second.target


@pytest.mark.parametrize("is_keyed", [True, False])
async def test_raw_creates_do_not_replace_each_other(service, address, is_keyed):
    """One that was not sent, or had no effect, is made after later ones."""
    async with client_of(service, journal=address, on_secret=lambda *_: None) as client:
        first = keyed(raw_create(client), "first" if is_keyed else None)
        await lost(service, "webhooks.create", first)
        [left] = client.unsettled
        second = keyed(raw_create(client), "second" if is_keyed else None)
        assert (await second.outcome()).applied
        assert (await create(client).outcome()).applied
        assert (await client.resume(left, reader=absent).outcome()).applied
    assert len(service.ledger.effects("webhooks.create")) == 3


async def test_raw_create_that_was_settled_before_a_later_one(service, client):
    """It is made after that one, if somebody resumes it all the same."""
    await lost(service, "webhooks.create", raw_create(client))
    [left] = client.unsettled
    settled = await client.settle(left, reader=absent)
    assert settled.verdict is Verdict.NOT_APPLIED
    assert (await raw_create(client).outcome()).applied
    assert (await client.resume(left, reader=absent).outcome()).applied
    assert len(service.ledger.effects("webhooks.create")) == 2


async def test_raw_creates_in_a_batch(service, client, tmp_path):
    """They wait for creates of their URL, and replace nothing there either."""
    service.script("webhooks.create", "reset")
    await client.webhooks.list()
    writes = [create(client), raw_create(client), raw_create(client)]
    async with Batch.open(
        tmp_path / "run.db", client, tag=False, on_secret=lambda *_: None
    ) as batch:
        results = [result async for result in batch.run(writes)]
    assert all(result.applied for result in results)
    assert len(service.ledger.effects("webhooks.create")) == 3
