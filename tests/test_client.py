"""What `Client` refuses when it is made, and how long it remembers."""

from __future__ import annotations

import asyncio
import gc
import pickle
import warnings

import pytest

from invsvc_async import ApiKey, Client, Timeouts
from invsvc_async.client import options_of
from invsvc_async.errors import ConfigurationError, InvalidRequestError, NotFoundError
from invsvc_async.simulator import Simulator
from invsvc_async.testing import VirtualClock
from invsvc_async.writes import open_writes, register

BASE = "http://127.0.0.1:1/v2"
HOOK = {"url": "https://me.example/in", "events": ["invoice.created"]}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("https://h.example/v2/", "https://h.example/v2"),
        ("https://H.example:8443/v2", "https://h.example:8443/v2"),
        ("http://[::1]:80/v2", "http://[::1]:80/v2"),
    ],
)
async def test_base_url(given, expected):
    """The base URL has the brackets of an IPv6 address, its port, and no slash at its end."""
    async with Client(given, ApiKey("k" * 16)) as client:
        assert options_of(client).core.base_url == expected


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"credential": "abc"}, "credential: must be ApiKey"),
        ({"base_url": None}, "base_url: must be a string, not NoneType"),
        ({"base_url": "https://h.example:99999/v2"}, "base_url: is not a URL"),
        ({"base_url": "https://u:p@h.example/v2"}, "must not contain credentials"),
        ({"base_url": "https://h.example/api"}, "must end in the version segment"),
        ({"base_url": "http://h.example/v2"}, "plain http to another machine"),
        ({"base_url": "ftp://h.example/v2"}, "must start with https://"),
        ({"base_url": "https:///v2"}, "must start with https://"),
        ({"base_url": "https://h.example/v2?a=b"}, "must not have a query"),
        ({"base_url": "https://h.example/a b/v2"}, "contains a space"),
        ({"timeout": 3}, "timeout: must be Timeouts"),
        ({"reads": None}, "reads: must be ReadRetries"),
        ({"team": ""}, "team: must be the id of a team"),
        ({"team": "a/b"}, "team: must be the id of a team"),
        ({"team": "t" * 2000}, "team: must be the id of a team"),
        ({"headers": {"X-One": 1}}, "names and values must be strings"),
        (
            {"headers": {"authorization": "x"}},
            "authorization is set by the client itself",
        ),
        (
            {"headers": {"X-One": "a\r\nX-Two: b"}},
            "value of X-One contains a line break",
        ),
        ({"user_agent": "a\nb"}, "value of User-Agent contains a line break"),
        (
            {"session": "https://h.example"},
            r"session: must be an aiohttp\.ClientSession, not a str",
        ),
        ({"ssl": "ca.pem"}, "ssl: must be an SSLContext"),
        ({"journal": 3}, "journal: must be a path"),
        ({"on_attempt": "print"}, "on_attempt: must be a function"),
        (
            {"on_unsettled": asyncio.sleep},
            "on_unsettled: must be a function that is not async",
        ),
    ],
)
def test_settings_that_cannot_work(settings, reason):
    """Each is refused where the client is made."""
    with pytest.raises(ConfigurationError, match=reason):
        Client(**{"base_url": BASE, "credential": ApiKey("abc"), **settings})


async def test_recovery_without_a_journal():
    """There is nothing to recover from, and the error says how there would be."""
    async with Client(BASE, ApiKey("abc")) as client:
        with pytest.raises(
            ConfigurationError, match=r"Make it with journal='journal\.db'"
        ):
            await client.recover()


@pytest.mark.parametrize("key", ["", "x" * 201, "a\nb", 5])
async def test_key_that_no_journal_takes(key):
    """It is refused, and the write with it: neither is sent, nor missed."""
    async with Client(BASE, ApiKey("abc")) as client:
        with pytest.raises(InvalidRequestError, match="key"):
            client.webhooks.create(**HOOK).keyed(key)


@pytest.mark.parametrize("policy", [5, "never", {"deadline": 1}, Timeouts()])
async def test_policy_of_another_type(policy):
    """It is refused, and the write with it, before anything is sent."""
    async with Client(BASE, ApiKey("abc")) as client:
        with pytest.raises(ConfigurationError, match="policy: must be ReconcilePolicy"):
            client.webhooks.create(**HOOK).with_policy(policy)


async def test_write_that_was_closed():
    """It cannot be awaited any more, in words."""
    async with Client(BASE, ApiKey("abc")) as client:
        write = client.webhooks.create(**HOOK)
        write.close()
        with pytest.raises(
            ConfigurationError, match=r"webhooks.create: .*it was closed"
        ):
            await write


async def test_claims_that_are_forgotten(monkeypatch):
    """The oldest goes first once there are too many; a guess gives way to what is certain, and to no guess."""
    monkeypatch.setattr(register, "CLAIMS_KEPT", 2)
    async with Client(BASE, ApiKey("abc")) as client:
        kept = options_of(client).core.writes
        for number in range(3):
            kept.claim(f"wh_{number}", f"k{number}", is_certain=False)
        kept.claim("wh_2", "another", is_certain=False)
        assert dict(kept.claims) == {"wh_1": ("k1", False), "wh_2": ("k2", False)}
        kept.claim("wh_2", "sure", is_certain=True)
        kept.claim("wh_2", "another", is_certain=False)
        assert dict(kept.claims) == {"wh_1": ("k1", False), "wh_2": ("sure", True)}


async def test_claims_of_tagged_creates_that_are_forgotten(monkeypatch):
    """Fewer are kept of creates with a unique tag, and they displace no others."""
    monkeypatch.setattr(register, "TAGGED_KEPT", 2)
    async with Client(BASE, ApiKey("abc")) as client:
        kept = options_of(client).core.writes
        kept.claim("wh_other", "k", is_certain=True)
        for number in (0, 1, 1, 2):
            kept.claim(
                f"wh_{number}", f"k{number}", is_certain=True, has_unique_tag=True
            )
        assert list(kept.claims) == ["wh_other", "wh_1", "wh_2"]


async def test_unsettled_writes_that_are_too_many(monkeypatch, caplog):
    """The oldest is no longer kept, which is logged with its key; nothing else of it is kept either."""
    monkeypatch.setattr(open_writes, "UNSETTLED_KEPT", 1)
    async with Client(BASE, ApiKey("abc")) as client:
        writes = [
            client.webhooks.delete("wh_1").keyed(f"row-{number}") for number in range(2)
        ]
        known = options_of(client).core.writes
        for write in writes:
            options_of(client).core.leave_unsettled(write.intent, "the line")
            write.close()
        assert [intent.key for intent in client.unsettled] == ["row-1"]
        known.open_writes.overtake(
            *known.open_writes.doubt_others(known.records.of("the line"), "newer")
        )
        assert [intent.newest for intent in client.unsettled] == [False]
        known.forget(client.unsettled[0].identity)
        assert client.unsettled == ()
        assert not known.records.of("the line").open
    assert "intent row-0 is no longer in" in caplog.text


async def test_pause_when_the_client_is_closed():
    """A pause ends with the client, whatever is left of it."""
    client = Client(BASE, ApiKey("abc"))
    pausing = asyncio.create_task(options_of(client).core.under_way.pause(3600))
    await asyncio.sleep(0)
    await client.aclose()
    await asyncio.wait_for(pausing, 30)


async def test_virtual_sleeper_that_is_cancelled():
    """It holds up nobody, and the time that it alone waited for does not come."""
    clock = VirtualClock()
    begun = clock.now()
    gone, stays = (
        asyncio.create_task(clock.sleep(5)),
        asyncio.create_task(clock.sleep(2)),
    )
    await asyncio.sleep(0)
    gone.cancel()
    await stays
    for _ in range(100):
        await asyncio.sleep(0)
    assert clock.now() == begun + 2


@pytest.mark.no_secret_scan  # which keeps the client
# which changes the order in which all are finalized
@pytest.mark.parametrize("collected", [False, True])
def test_client_that_was_not_closed(collected):
    """A warning names the client, without its credential, also if its connections are finalized first."""

    async def leave_open():
        async with Simulator() as service:
            if collected:
                gc.collect()
            client = Client(service.base_url, ApiKey(service.api_key))
            await client.webhooks.list()
            return service.base_url, service.api_key

    with pytest.warns(ResourceWarning) as warned:
        base_url, key = asyncio.run(leave_open())
        gc.collect()

    words = [str(each.message) for each in warned]
    with warnings.catch_warnings():
        # of aiohttp's session, which the first one kept
        warnings.simplefilter("ignore")
        warned.clear()
        gc.collect()
    assert any(each.startswith(f"unclosed Client('{base_url}')") for each in words)
    assert not [each for each in words if key in each]


async def test_base_url_with_a_path_before_the_version():
    """A 404 of an operation without an id hints at the base URL; one of a thing does not."""
    async with Simulator() as service:
        wrong = service.base_url.replace("/v2", "/api/v2")
        async with Client(wrong, ApiKey(service.api_key)) as client:
            with pytest.raises(
                NotFoundError, match="has /api before the version"
            ) as caught:
                await client.webhooks.list()
            with pytest.raises(NotFoundError) as of_a_thing:
                await client.webhooks.get("wh_1")

    assert wrong in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301 - our own
    assert "base URL" not in str(of_a_thing.value)


def test_error_of_many_problems():
    """Its message tells the first thirty; all are in ``problems``."""
    problems = [f"graph.nodes[{number}].type: is required" for number in range(400)]
    error = InvalidRequestError(problems, operation="journeys.update")
    assert len(error.problems) == 400
    assert "nodes[29].type" in str(error)
    assert "nodes[30].type" not in str(error)
    assert str(error).endswith(
        "; and 370 more, all in .problems. Nothing was sent. Correct it and call again."
    )
    assert "more" not in str(InvalidRequestError(problems[:30]))


def test_error_made_again_from_its_text():
    """An engine of tasks may make an error again from its text, which stays as it is."""
    error = InvalidRequestError(
        "key: is taken", operation="webhooks.create", hint="Take another."
    )
    assert str(InvalidRequestError(str(error))) == str(error)
    assert (
        str(InvalidRequestError(str(InvalidRequestError("key: is taken")))).count(
            "Nothing was sent"
        )
        == 1
    )
