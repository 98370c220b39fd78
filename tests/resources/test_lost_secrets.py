"""Another webhook in the place of one whose secret was lost; judged by the ledger of the service."""

from __future__ import annotations

import asyncio
import json
import re

import attrs
import pytest

from invsvc_async import ConfigurationError, InvalidRequestError, SecretLostError
from invsvc_async.engines.results import RowResult
from tests.batch.conftest import client_of
from tests.durable.conftest import shared  # noqa: F401 - pytest finds it by name
from tests.resources.replacing import KEY, POLICY, replaced
from tests.support.children import started

URL = "https://me.example/in"
HOOK = {"url": URL, "events": ["invoice.created"]}
LOST = "apply, then reset"
MOST_STEPS = 60


class Kept:
    """What ``on_secret`` got, by the id of the webhook."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def __call__(self, key, webhook) -> None:
        self.calls.append((key, webhook.id))


@pytest.fixture
def kept():
    return Kept()


@pytest.fixture
async def client(service, kept, tmp_path):
    settings = {"journal": tmp_path / "calls.db", "reconcile": POLICY}
    async with client_of(service, on_secret=kept, **settings) as made:
        yield made


def living(service, url=URL):
    """Return the ids of the webhooks for *url* that exist; check that since the first one, there was always one."""
    alive: list[str] = []
    changes = [
        each
        for each in service.ledger.effects()
        if each.operation in ("webhooks.create", "webhooks.delete")
    ]
    made_for_url = {
        each.target for each in changes if (each.body or {}).get("url") == url
    }
    for each in sorted(changes, key=lambda entry: entry.applied_at):
        if each.target not in made_for_url:
            continue
        if each.operation == "webhooks.create":
            alive.append(each.target)
        else:
            alive.remove(each.target)
        assert alive, "events of this time go to nobody"
    return alive


async def lost(client, key=KEY, **changes):
    """Create a webhook whose answer is lost, and return the error."""
    with pytest.raises(SecretLostError) as caught:
        await client.webhooks.create(**{**HOOK, **changes}).keyed(key)
    return caught.value


async def test_new_webhook_stands_in_its_place(service, client, kept):
    """It has a secret, which ``on_secret`` got under the key of the first create; the old one is gone."""
    service.script("webhooks.create", LOST)
    error = await lost(client, description="for ana")
    hook = await client.webhooks.replace_lost(error)

    assert hook.secret == service.secret_of(hook.id)
    assert living(service) == [hook.id]
    assert kept.calls == [(KEY, hook.id)]
    assert hook.url == URL
    assert re.fullmatch(r"for ana \[iv-\w+\]", hook.description)


async def test_again_sends_nothing(service, client, kept):
    """The webhook is the same one, without its secret."""
    service.script("webhooks.create", LOST)
    first = await client.webhooks.replace_lost(await lost(client))
    sent = len(service.ledger.entries)
    again = await client.webhooks.replace_lost(await client.outcome_of(KEY))

    assert (again.id, again.secret) == (first.id, None)
    assert len(service.ledger.entries) == sent
    assert len(kept.calls) == 1


async def test_many_at_once(service, client, kept):
    """They all get the one webhook."""
    service.script("webhooks.create", LOST)
    error = await lost(client)
    hooks = await asyncio.gather(
        *(client.webhooks.replace_lost(error) for _ in range(8))
    )

    assert {hook.id for hook in hooks} == set(living(service))
    assert len(service.ledger.effects("webhooks.create")) == 2
    assert len(kept.calls) == 1


async def test_two_processes_at_once(service, shared, kept):  # noqa: F811 - the fixture
    """Two clients of one journal make one webhook."""
    service.script("webhooks.create", LOST)
    settings = {"journal": shared, "reconcile": POLICY, "on_secret": kept}
    async with (
        client_of(service, **settings) as one,
        client_of(service, **settings) as other,
    ):
        hooks = await asyncio.gather(
            *(replaced(each, URL) for each in (one, other) * 3)
        )

    assert {hook.id for hook in hooks} == set(living(service))
    assert len(service.ledger.effects("webhooks.create")) == 2
    assert len(kept.calls) == 1


async def test_next_secret_is_lost_too(service, client, kept):
    """That webhook is replaced in turn, and deleted, too."""
    service.script("webhooks.create", LOST, LOST, LOST)
    hook = await client.webhooks.replace_lost(await lost(client))

    assert living(service) == [hook.id]
    assert kept.calls == [(KEY, hook.id)]
    assert len(service.ledger.effects("webhooks.delete")) == 3


async def test_every_secret_is_lost(service, client, kept):
    """It stops, with one webhook; called again with its error, it goes on."""
    service.script("webhooks.create", *[LOST] * 4)
    with pytest.raises(SecretLostError, match="2 more webhooks") as caught:
        await client.webhooks.replace_lost(await lost(client), attempts=2)
    assert len(living(service)) == 1
    assert caught.value.outcome.intent.key == KEY

    hook = await client.webhooks.replace_lost(caught.value, attempts=2)
    assert living(service) == [hook.id]
    assert kept.calls == [(KEY, hook.id)]


async def test_refused_create_leaves_the_old_one(service, client):
    """Nothing is deleted before there is another webhook; later, it goes on."""
    service.script("webhooks.create", LOST, "403")
    error = await lost(client)
    with pytest.raises(Exception, match="403"):
        await client.webhooks.replace_lost(error)
    assert living(service) == [error.webhook.id]

    hook = await client.webhooks.replace_lost(error)
    assert living(service) == [hook.id]


async def test_delete_that_fails(service, client, kept):
    """It raises, the new secret is kept, and the next call deletes."""
    service.script("webhooks.create", LOST)
    service.script("webhooks.delete", "403")
    error = await lost(client)
    with pytest.raises(Exception, match="403"):
        await client.webhooks.replace_lost(error)
    assert len(living(service)) == 2

    hook = await client.webhooks.replace_lost(error)
    assert living(service) == [hook.id]
    assert kept.calls == [(KEY, hook.id)]


async def test_old_one_that_somebody_deletes_meanwhile(service, tmp_path):
    """It is gone, which is all that was wanted."""
    service.script("webhooks.create", LOST)
    settings = {"journal": tmp_path / "calls.db", "reconcile": POLICY}

    async def deletes_the_old_one(_key, _webhook):
        await client.webhooks.delete(error.webhook)

    async with client_of(service, on_secret=deletes_the_old_one, **settings) as client:
        error = await lost(client)
        hook = await client.webhooks.replace_lost(error)
    assert living(service) == [hook.id]


async def test_key_that_was_forgotten_and_used_again(service, client, kept):
    """What stood in the place of another webhook does not stand in the place of this one."""
    service.script("webhooks.create", LOST, "pass", LOST)
    first = await client.webhooks.replace_lost(await lost(client))
    await client.webhooks.delete(first.id).keyed("away")
    await client.forget(KEY)
    second = await client.webhooks.replace_lost(await lost(client, url=f"{URL}/2"))

    assert second.id != first.id
    assert living(service, f"{URL}/2") == [second.id]


async def test_long_keys_stay_apart(service, client):
    """What is made of them has room, and is not the same for two keys."""
    service.script("webhooks.create", LOST, "pass", LOST)
    hooks = [
        await client.webhooks.replace_lost(
            await lost(client, key="k" * 199 + end, url=URL + end)
        )
        for end in "ab"
    ]
    for hook, end in zip(hooks, "ab", strict=True):
        assert living(service, URL + end) == [hook.id]


# --- what is refused, before anything is sent


async def refused(
    service, client, given, match, error=InvalidRequestError, **arguments
):
    """Check that replacing what is *given* raises, and sends nothing."""
    sent = len(service.ledger.entries)
    with pytest.raises(error, match=match):
        await client.webhooks.replace_lost(given, **arguments)
    assert len(service.ledger.entries) == sent


async def test_webhook_found_by_its_content_is_not_deleted(service, client):
    """It may be another program's."""
    service.script("webhooks.create", LOST)
    error = await lost(client, tag=False)
    assert error.outcome.evidence.basis == "match"
    await refused(service, client, error, "another program's")


async def test_webhook_with_a_text_as_tag_is_not_deleted(service, client):
    """Another program may have made one with the same text."""
    service.script("webhooks.create", LOST)
    await refused(
        service, client, await lost(client, tag="by the shop"), "another program's"
    )


async def test_webhook_that_was_changed_is_not_deleted(service, client):
    """The change would be lost."""
    service.script("webhooks.create", LOST)
    error = await lost(client)
    await client.webhooks.update(error.webhook, status="inactive")
    await refused(service, client, error, "changed since it was created: status")


async def test_webhook_that_is_gone_is_not_made_again(service, client):
    """Somebody deleted it, and perhaps made another."""
    service.script("webhooks.create", LOST)
    error = await lost(client)
    await client.webhooks.delete(error.webhook)
    await refused(
        service, client, error, "is not there, and no webhook was made in its place"
    )


async def test_secret_that_is_not_lost(service, client):
    """There is nothing to replace."""
    outcome = await client.webhooks.create(**HOOK).keyed(KEY).outcome()
    await refused(service, client, outcome, "not lost, but delivered")
    await refused(service, client, KEY, "must be a SecretLostError, .* not a str")


async def test_no_attempt(service, client):
    """It would do nothing."""
    service.script("webhooks.create", LOST)
    await refused(service, client, await lost(client), "attempts", attempts=0)


@pytest.mark.parametrize("without", ["journal", "on_secret"])
async def test_client_that_cannot_keep(service, client, tmp_path, without):
    """Without a journal there may be two webhooks, and without ``on_secret`` a kill loses the next secret."""
    service.script("webhooks.create", LOST)
    error = await lost(client)
    settings = {"journal": tmp_path / "other.db", "on_secret": print}
    del settings[without]
    async with client_of(service, **settings) as other:
        await refused(
            service, other, error, "journal=… and on_secret=…", ConfigurationError
        )


# --- kills


async def child_of(service, tmp_path, url, last=0, *batch, is_again=False):
    """
    Start a process that creates, in a *batch* or by itself, and replaces.

    It kills itself at the step *last*, unless it *is_again*.
    """
    named = (tmp_path / f"{last}.db", url, tmp_path / f"{last}.secrets")
    arguments = (*named, 0 if is_again else last, *batch)
    return await started(
        "tests.resources.replacing", service.base_url, service.api_key, *arguments
    )


@pytest.mark.untraced
async def test_killed_at_each_step(service, tmp_path):
    """Whatever was done by then, the next run ends with one webhook, whose secret was kept."""
    for last in range(1, MOST_STEPS):
        url = f"{URL}/{last}"
        service.script("webhooks.create", LOST)
        child = await child_of(service, tmp_path, url, last)
        ended_by_itself = await child.wait() == 0
        if not ended_by_itself:
            await finished(service, tmp_path, url, last)
        check_one_with_secret(service, tmp_path, url, last)
        if ended_by_itself:
            break
    assert 12 < last < MOST_STEPS - 1


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["webhooks.create", "webhooks.delete"])
@pytest.mark.parametrize("end", ["apply, then hang", "hang"])
async def test_killed_on_the_wire(service, tmp_path, operation, end):
    """A request had arrived, with its effect or without one, and its process died before the answer."""
    service.script("webhooks.create", LOST)
    service.script(
        operation, *(["pass", end] if operation == "webhooks.create" else [end])
    )
    arrivals = 2 if operation == "webhooks.create" else 1
    child = await child_of(service, tmp_path, URL)
    await service.arrived(operation, arrivals)
    child.kill()
    await child.communicate()
    await finished(service, tmp_path, URL, 0)
    check_one_with_secret(service, tmp_path, URL, 0)


async def finished(service, tmp_path, url, last):
    """Do it again, in this process."""
    kept = (tmp_path / f"{last}.secrets").open("a")

    def keep(key, webhook):
        kept.write(f"{json.dumps([key, webhook.id, webhook.secret])}\n")

    settings = {"journal": tmp_path / f"{last}.db", "reconcile": POLICY}
    with kept:
        async with client_of(service, on_secret=keep, **settings) as client:
            await replaced(client, url)


def check_one_with_secret(service, tmp_path, url, last):
    """Check that one webhook for *url* exists, and that its secret is the last that was kept."""
    [exists] = living(service, url)
    *_, kept = (tmp_path / f"{last}.secrets").read_text().splitlines()
    assert json.loads(kept) == [KEY, exists, service.secret_of(exists)], last
    assert (
        len(
            [
                each
                for each in service.ledger.find("webhooks.create")
                if each.body["url"] == url
            ]
        )
        <= 4
    )


# --- who may have the secret


async def test_words_after_a_kill(service, client):
    """Nobody says that nobody has the secret, if the process that sent the create may have passed it on."""
    service.script("webhooks.create", LOST)
    outcome = (await lost(client)).outcome
    assert "nobody has it" in RowResult.of("k", outcome).message
    started = outcome.intent
    killed = attrs.evolve(started, sent=(attrs.evolve(started.sent[-1], end=None),))
    async with client_of(service, reconcile=POLICY) as other:  # without its verdict
        settled = await other.settle(killed)
    assert settled.secret_lost
    told = RowResult.of("k", settled).message
    assert "on_secret may have had the secret" in told
    assert "nobody has it" not in told
