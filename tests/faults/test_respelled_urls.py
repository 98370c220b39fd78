"""Services that store the URL of a webhook in other words than the request's."""

import asyncio

import pytest

from invsvc_async import Verdict
from tests.faults.conftest import SHORT, client_of

pytestmark = pytest.mark.every_python

SAME = {  # as sent: as stored.  The same URL by its specification, so that the webhook is this write's
    "https://me.example/in": "HTTPS://ME.Example:443/in",
    "http://me.example:80/in": "http://me.example/in",
    "https://me.example": "https://me.example/",
    "https://straße.example/in": "https://xn--strae-oqa.example/in",
    "https://bücher.example/in": "https://xn--bcher-kva.example/in",
    "https://me.example/a/./b/../c": "https://me.example/a/c",
    "https://me.example/%7ein": "https://me.example/~in",
    "https://me.example/ü": "https://me.example/%C3%BC",
    "https://me.example/in?": "https://me.example/in",
}
ANOTHER = {  # not the same URL, so that nothing can tell whose the webhook is
    "https://straße.example/old": "https://strasse.example/old",
    "https://me.example/in": "https://me.example/in/",
    "https://me.example/in/": "https://me.example/in",
    "https://user:password@me.example/in": "https://me.example/in",
    "https://me.example/in?a=b%20c": "https://me.example/in?a=b+c",
    "https://me.example/in?b=1&a=2": "https://me.example/in?a=2&b=1",
    "https://me.example/In": "https://me.example/in",
    "https://me.example/in#part": "https://me.example/in",
    "http://me.example/in": "https://me.example/in",
    "https://me.example/{tenant}": "https://me.example/tenant-7",
    "https://www.me.example/in": "https://hooks.me.example/www/in",
}


def create(client, url, **options):
    return client.webhooks.create(url=url, events=["invoice.created"], **options)


def effects(service):
    return [
        entry.target
        for entry in service.ledger.effects("webhooks.create")
        if entry.by == "client"
    ]


def storing(service, spellings):
    """Make the service store URLs as *spellings* says."""

    def respell(_operation, book, _answer):
        for hook in book.webhooks.items.values():
            hook["url"] = spellings.get(hook["url"], hook["url"])

    service._app.on_effect = respell


@pytest.mark.parametrize(("sent", "stored"), [*SAME.items(), *ANOTHER.items()])
async def test_lost_create_whose_url_is_stored_in_other_words(
    service, client, sent, stored
):
    """It is not made again; what the two spellings do not show to be the same is UNKNOWN, with the candidate."""
    storing(service, {sent: stored})
    await client.webhooks.list()
    service.script("webhooks.create", "apply, then reset")
    outcome = await create(client, sent).outcome()

    (made,) = effects(service)
    if SAME.get(sent) == stored:
        assert (outcome.verdict, outcome.value.id) == (Verdict.APPLIED, made)
    else:
        assert outcome.verdict is Verdict.UNKNOWN
        assert [hook["id"] for hook in outcome.evidence.candidates] == [made]


@pytest.mark.parametrize(("sent", "stored"), [*SAME.items(), *ANOTHER.items()])
async def test_create_that_is_settled_elsewhere(service, client, sent, stored):
    """Another client, which has only the intent, does not take it for absent either."""
    storing(service, {sent: stored})
    await client.webhooks.list()
    service.script("webhooks.create", "apply, then reset")
    outcome = await create(client, sent).with_policy(SHORT, deadline=0.01).outcome()
    async with client_of(service) as other:
        settled = await other.settle(outcome.intent)
        resumed = await other.resume(outcome.intent).outcome()

    assert settled.verdict is resumed.verdict
    assert settled.verdict in (Verdict.APPLIED, Verdict.UNKNOWN)
    assert len(effects(service)) == 1


async def test_create_with_a_unique_tag_that_is_stored_in_other_words(service, client):
    """The tag shows whose it is, whatever its URL."""
    storing(service, ANOTHER)
    service.script("webhooks.create", "apply, then reset")
    outcome = await create(client, "https://me.example/{tenant}", tag=True).outcome()

    assert (outcome.verdict, outcome.value.id) == (Verdict.APPLIED, effects(service)[0])


async def test_creates_of_several_urls_at_once(service, client):
    """The others' webhooks, which differ from a lost create only in the URL, are not candidates for it."""
    await client.webhooks.list()
    service.script(
        "webhooks.create", "reset", "pass", "apply, then reset", "slow 0.6", "reset"
    )
    policy = {"resend": "never"}
    writes = [
        create(client, f"https://me.example/{at}").with_policy(**policy)
        for at in range(5)
    ]
    outcomes = await asyncio.gather(*(write.outcome() for write in writes))

    verdicts = sorted(str(outcome.verdict) for outcome in outcomes)
    assert verdicts == ["applied"] * 3 + ["not applied"] * 2
    assert len(effects(service)) == 3


async def test_creates_of_several_urls_in_sequence(service, client):
    """What this client made just before is no candidate, because answers gave its id."""
    await client.webhooks.list()
    service.script("webhooks.create", "pass", "pass", "reset")
    first, second = [
        await create(client, f"https://me.example/{at}") for at in range(2)
    ]
    outcome = (
        await create(client, "https://me.example/2")
        .with_policy(resend="never")
        .outcome()
    )

    assert outcome.verdict is Verdict.NOT_APPLIED
    assert effects(service) == [first.id, second.id]


@pytest.mark.parametrize(
    "changes",
    [{"description": "x"}, {"events": ["payment.created"]}, {"status": "inactive"}],
)
async def test_webhook_of_another_url_that_differs_otherwise(service, client, changes):
    """It is not this write's, so it does not disprove absence."""
    await client.webhooks.list()

    async def somebody():
        await service.arrived("webhooks.create")
        other = {"url": "https://x.example/", "events": ["invoice.created"], **changes}
        service.seed_webhook(**other, created_at=service.clock.now_ms())

    service.script("webhooks.create", "reset")
    write = create(client, "https://me.example/in").with_policy(resend="never")
    outcome, _ = await asyncio.gather(write.outcome(), somebody())

    assert outcome.verdict is Verdict.NOT_APPLIED


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        pair
        for pair in ANOTHER.items()
        if "tenant" not in pair[0] and "www" not in pair[0] and "&" not in pair[0]
    ],
)
async def test_lost_update_whose_url_is_stored_in_other_words(
    service, client, sent, stored
):
    """Nobody else changed the webhook, so it is not superseded."""
    hook = await create(client, "https://me.example/before")
    storing(service, {sent: stored})
    service.script("webhooks.update", "late 0.1, then reset")
    outcome = await client.webhooks.update(hook, url=sent).outcome()

    assert outcome.verdict is Verdict.UNKNOWN
    assert "url" in outcome.message
    assert service.arrivals("webhooks.update") == 1
