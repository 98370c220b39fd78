"""Creates in doubt: turns, shared lists, claims, tags, full lists, lost secrets, duplicates that are told."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

import attrs
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from invsvc_async import (
    ApiKey,
    Client,
    ConfigurationError,
    SecretLostError,
    Timeouts,
    Verdict,
)
from invsvc_async.simulator.calls import Call
from invsvc_async.simulator.state import Shelf
from tests.faults.conftest import SHORT, client_of
from tests.support.waiting import cancel

pytestmark = pytest.mark.every_python

URL = "https://me.example/in"
PATIENT = Timeouts(attempt=2.0, connect=2.0, call=5.0)


def create(client, url=URL, **options):
    return client.webhooks.create(url=url, events=["invoice.created"], **options)


def effects(service):
    return [
        entry
        for entry in service.ledger.effects("webhooks.create")
        if entry.by == "client"
    ]


async def test_identical_untagged_creates_take_turns(service, client):
    """Twins in doubt are not confused: each ends applied, with a webhook of its own."""
    service.script("webhooks.create", "apply, then reset", "reset", "pass")
    outcomes = await asyncio.gather(
        *(create(client, on_lost_secret="keep").outcome() for _ in range(3))
    )

    assert [outcome.verdict for outcome in outcomes] == [Verdict.APPLIED] * 3
    assert len({outcome.value.id for outcome in outcomes}) == 3
    assert {outcome.value.id for outcome in outcomes} == {
        entry.target for entry in effects(service)
    }


async def test_create_without_any_slack_of_clocks(service, client):
    """A time of creation is cut to its millisecond, which does not put it before the send."""
    policy = attrs.evolve(SHORT, clock_slack=0.0)
    for _ in range(20):
        await client.webhooks.list()
    service.script("webhooks.create", *["apply, then reset"] * 20)
    writes = [
        create(client, url=f"https://me.example/{number}") for number in range(20)
    ]
    outcomes = [await write.with_policy(policy).outcome() for write in writes]

    assert {outcome.verdict for outcome in outcomes} == {Verdict.APPLIED}
    assert len(effects(service)) == 20


@pytest.fixture
def whole_seconds(service, monkeypatch):
    """Make the service keep times of creation in whole seconds, and its clock 0.7 s into one."""
    put = Shelf.put

    def put_truncated(shelf, key, record):
        return put(
            shelf,
            key,
            record.with_changes({"created_at": record["created_at"] // 1000 * 1000}),
        )

    monkeypatch.setattr(Shelf, "put", put_truncated)
    service.clock.offset = 0.7 - service.clock.now_ms() % 1000 / 1000


async def test_create_whose_time_is_kept_in_whole_seconds(
    service, client, whole_seconds
):
    """A time of creation that is truncated to its second may be of the send: its webhook is no stranger's."""
    service.script("webhooks.create", "apply, then reset")
    outcome = await create(client).outcome()

    assert outcome.verdict is Verdict.UNKNOWN
    assert [hook["id"] for hook in outcome.evidence.candidates] == [
        each.target for each in effects(service)
    ]


async def test_own_webhook_whose_time_is_kept_in_whole_seconds(
    service, client, whole_seconds
):
    """A webhook that an earlier create of this client made in the same second is not a candidate."""
    first = await create(client)
    service.script("webhooks.create", "reset")
    outcome = await create(client).outcome()

    assert outcome.verdict is Verdict.APPLIED
    assert [each.target for each in effects(service)] == [first.id, outcome.value.id]


async def test_identical_tagged_creates_run_side_by_side(service, client):
    """Tags tell twins apart, so none waits for another's window."""
    service.script("webhooks.create", *["apply, then reset"] * 5)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    outcomes = await asyncio.gather(
        *(create(client, tag=True).outcome() for _ in range(5))
    )

    assert loop.time() - begun < 0.4  # one window: in turn they would need five
    assert len({outcome.value.id for outcome in outcomes}) == 5
    assert all(outcome.evidence.basis == "tag" for outcome in outcomes)
    assert all(
        f" {outcome.intent.tag}" in f" {outcome.value.description}"
        for outcome in outcomes
    )


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="tasks that begin at once are new in 3.12"
)
async def test_creates_in_doubt_with_tasks_that_begin_at_once(service, client):
    """Each reads the state anew: the list of an earlier create shows nothing of a later one."""
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    service.script("webhooks.create", *["apply, then reset", "reset", "pass"] * 2)
    writes = [
        create(client, url=f"https://me.example/{number}", on_lost_secret="keep")
        for number in range(4)
    ]
    outcomes = [await write.outcome() for write in writes]

    assert [outcome.verdict for outcome in outcomes] == [Verdict.APPLIED] * 4
    assert {outcome.value.id for outcome in outcomes} == {
        entry.target for entry in effects(service)
    }


async def test_creates_in_doubt_share_their_lists(service, client):
    """Fifty creates that wait for one list do not ask for fifty."""
    await create(client, tag=True)
    service.script("webhooks.create", *["reset"] * 50)
    before = service.arrivals("webhooks.list")
    outcomes = await asyncio.gather(
        *(
            create(client, tag=True).with_policy(resend="never").outcome()
            for _ in range(50)
        )
    )

    assert {outcome.verdict for outcome in outcomes} == {Verdict.NOT_APPLIED}
    # each for itself: two at least, a hundred in all
    assert service.arrivals("webhooks.list") - before < 50


@pytest.mark.parametrize(
    ("url", "stored"),
    [
        ("https://me.example/{tenant}", "https://me.example/%7Btenant%7D"),
        ("https://me.example/in?name='a'", "https://me.example/in?name=%27a%27"),
        ("https://hooks:@me.example/in", "https://hooks@me.example/in"),
    ],
)
async def test_service_that_stores_a_url_as_browsers_write_it(
    service, client, url, stored
):
    """The webhook is found by either spelling: it is not created again."""

    def store(_operation, book, _answer):
        for hook in book.webhooks.items.values():
            hook["url"] = stored

    service._app.on_effect = store
    await client.webhooks.list()
    service.script("webhooks.create", "apply, then reset")
    outcome = await create(client, url=url).outcome()

    assert outcome.verdict is Verdict.APPLIED
    assert len(effects(service)) == 1


async def test_webhook_of_another_intent_is_not_taken_for_ours(service, client):
    """
    A webhook that an earlier create made is claimed: the next, in doubt and absent, is not called applied.
    """
    first = await create(client)
    service.script("webhooks.create", "reset")
    outcome = await create(client).with_policy(resend="never").outcome()

    assert outcome.verdict is Verdict.NOT_APPLIED
    assert [entry.target for entry in effects(service)] == [first.id]


async def test_webhook_of_somebody_else_is_a_candidate(service, client):
    """An alike webhook that may be ours or not is UNKNOWN, with the candidate in the evidence."""
    await client.webhooks.list()

    async def somebody():
        await service.arrived("webhooks.create")
        service.seed_webhook(
            url=URL, events=["payment.created"], created_at=service.clock.now_ms()
        )

    service.script("webhooks.create", "reset")
    outcome, _ = await asyncio.gather(create(client).outcome(), somebody())

    assert outcome.verdict is Verdict.UNKNOWN
    assert [hook["events"] for hook in outcome.evidence.candidates] == [
        ["payment.created"]
    ]
    assert [intent.key for intent in client.unsettled] == [outcome.intent.key]


async def test_full_list_proves_no_absence(service, client):
    """A list of 100 may be cut off: absence is not shown, and nothing is sent again."""
    for number in range(100):
        service.seed_webhook(url=f"https://me.example/{number}")
    service.script("webhooks.create", "reset")
    outcome = await create(client).outcome()

    assert outcome.verdict is Verdict.UNKNOWN
    assert "does not show the whole list" in outcome.message
    assert service.arrivals("webhooks.create") == 1


async def test_full_list_can_prove_presence(service, client):
    """Our own tag in a full list is proof all the same."""
    for number in range(99):
        service.seed_webhook(url=f"https://me.example/{number}")
    service.script("webhooks.create", "apply, then reset")
    outcome = await create(client, tag=True).outcome()
    assert outcome.verdict is Verdict.APPLIED


async def test_lost_secret_is_said(service, client):
    """The webhook that was found by reading has no secret: await raises with it, keep returns it."""
    service.script("webhooks.create", "apply, then reset", "apply, then reset")
    with pytest.raises(SecretLostError, match="replace_lost") as caught:
        await create(client, url="https://me.example/1")
    kept = await create(client, url="https://me.example/2", on_lost_secret="keep")

    assert caught.value.webhook.url == "https://me.example/1"
    assert caught.value.outcome.secret_lost
    assert caught.value.webhook.secret is None
    assert kept.secret is None


async def test_answered_create_has_its_secret(service, client):
    """With its answer at hand, nothing is lost."""
    outcome = await create(client).outcome()
    assert outcome.value.secret
    assert not outcome.secret_lost
    assert outcome.value.secret not in repr(outcome)
    assert outcome.value.secret not in outcome.to_json()
    assert outcome.value.secret not in outcome.intent.to_json()


async def test_secret_in_plain_data_stays_out_of_the_outcomes_repr(service, client):
    """The answer to an unlisted create is plain data: the caller has it whole, and no repr shows it."""
    body = {"url": "https://me.example/plain", "events": ["invoice.created"]}
    outcome = await client.write("POST", "/webhooks", json=body).outcome()

    assert outcome.value["secret"]
    assert outcome.value["secret"] not in repr(outcome)
    assert outcome.value["secret"] not in outcome.to_json()


async def test_effect_beyond_the_window_is_told_as_a_duplicate(service, client):
    """A commit that lands after our proof, against the promise's limits, is reported, never hidden."""
    service.script("webhooks.create", "late 0.6, then reset", "slow 0.2")
    outcome = await create(client).outcome()

    assert outcome.verdict is Verdict.APPLIED
    assert len(effects(service)) == 2
    (other,) = outcome.evidence.duplicates
    assert {outcome.value.id, other["id"]} == {
        entry.target for entry in effects(service)
    }


@pytest.mark.parametrize("tag", [True, False])
async def test_duplicate_that_is_older_than_the_webhook_of_the_answer(
    service, client, tag
):
    """What the answer gave is ours, with its secret; the other one is told, though it was made before."""
    service.script("webhooks.create", "late 0.7, then reset", "slow 0.6")
    outcome = await create(client.with_options(timeout=PATIENT), tag=tag).outcome()

    first, second = (entry.target for entry in effects(service))
    assert outcome.value.secret
    assert outcome.value.id == second
    assert [each["id"] for each in outcome.evidence.duplicates] == [first]


async def test_audit_that_fails_leaves_duplicates_unknown(service, client):
    """Where the read for duplicates tells nothing, it says so, and the verdict stays."""
    await client.webhooks.list()
    service.script("webhooks.create", "reset", "pass")
    service.script("webhooks.list", "pass", "pass", "503")

    outcome = await create(client).outcome()

    assert outcome.verdict is Verdict.APPLIED
    assert outcome.resends == 1
    assert outcome.evidence.duplicates is None
    assert outcome.value.secret


@pytest.mark.parametrize("offset", [-3600.0, 3600.0])
@pytest.mark.parametrize("step", ["apply, then reset", "reset"])
async def test_clock_that_is_an_hour_off_changes_no_verdict(service, offset, step):
    """Our clock is measured against the service's: an hour between them means nothing."""
    service.clock.offset = offset
    async with client_of(service) as client:
        service.script("webhooks.create", step)
        outcome = await create(client).outcome()
    assert outcome.verdict is Verdict.APPLIED
    assert len(effects(service)) == 1


@pytest.mark.parametrize("step", ["apply, then reset", "reset"])
async def test_service_clock_that_steps_in_mid_call_never_gives_a_false_verdict(
    service, client, step
):
    """Bounds that exclude each other are unknown for this write: less sure, never wrong."""
    service.script("webhooks.create", step)
    await client.webhooks.list()
    task = asyncio.create_task(create(client).outcome())
    await service.arrived("webhooks.create")
    service.clock.offset = 3600.0
    outcome = await task

    if outcome.verdict is Verdict.APPLIED:
        assert len(effects(service)) == 1
    else:
        assert outcome.verdict is Verdict.UNKNOWN


async def test_service_clock_that_is_set_and_set_back_in_mid_call(service):
    """Its own answers agree again when the write reads; those to other calls showed the step in between."""
    async with client_of(service, timeout=Timeouts(attempt=1.0)) as client:
        await client.webhooks.list()
        service.clock.offset = -3600.0
        service.script("webhooks.create", "apply, then hang")
        task = asyncio.create_task(create(client).outcome())
        await service.arrived("webhooks.create")
        await client.webhooks.list()
        service.clock.offset = 0.0
        outcome = await task

    assert outcome.verdict in (Verdict.APPLIED, Verdict.UNKNOWN)
    assert len(effects(service)) == 1


async def test_send_without_known_bounds(service, client):
    """Where the read before the first write fails, the write is sent all the same and settled truly."""
    service.script("webhooks.list", "503")
    service.script("webhooks.create", "apply, then reset")
    outcome = await create(client, tag=True).outcome()
    assert outcome.verdict is Verdict.APPLIED
    assert len(effects(service)) == 1


@pytest.mark.parametrize(
    "other", ["https://me.example/other", URL], ids=["another URL", "the same URL"]
)
@pytest.mark.parametrize("twin", ["of this client", "of another client", "from before"])
async def test_text_of_ones_own_that_another_webhook_bears(
    service, client, other, twin
):
    """A text is no proof: the create that never happened is not called applied, nor the other webhook ours."""
    text = "Invoices of prod"
    if twin == "from before":
        service.seed_webhook(url=other, description=text)
    else:
        async with client_of(service) as another:
            await create(another if "another" in twin else client, other, tag=text)
    made = len(effects(service))
    service.script("webhooks.create", "reset")
    outcome = await create(client, tag=text).with_policy(resend="never").outcome()

    assert len(effects(service)) == made
    assert outcome.verdict in {Verdict.NOT_APPLIED, Verdict.UNKNOWN}
    # made in the same moment
    assert outcome.verdict is Verdict.NOT_APPLIED or twin == "of another client"


async def test_equal_creates_with_one_text_take_turns(service, client):
    """Two creates with one user-supplied text are as hard to tell apart as untagged ones."""
    service.script("webhooks.create", "apply, then reset", "reset", "pass")
    writes = [create(client, tag="prod", on_lost_secret="keep") for _ in range(3)]
    outcomes = await asyncio.gather(*(write.outcome() for write in writes))

    assert [outcome.verdict for outcome in outcomes] == [Verdict.APPLIED] * 3
    assert len({outcome.value.id for outcome in outcomes}) == 3
    assert {outcome.value.id for outcome in outcomes} == {
        entry.target for entry in effects(service)
    }


@pytest.mark.parametrize(
    "url",
    ["https://[bad]/in#part", "http://[#", "https://me.example\uff03@b.example/#x"],
)
async def test_create_beside_a_webhook_whose_url_cannot_be_parsed(service, client, url):
    """Another program's malformed URL in the list disturbs neither the create in doubt, nor the next one."""
    service.seed_webhook(url=url)
    service.script("webhooks.create", "apply, then reset")
    first = await create(client, on_lost_secret="keep").outcome()
    second = await create(client).outcome()

    assert (first.verdict, second.verdict) == (Verdict.APPLIED, Verdict.APPLIED)
    assert len(effects(service)) == service.arrivals("webhooks.create") == 2


@pytest.mark.parametrize(
    "more", [{"has_more": True}, {"next": "cursor"}, {"total_results": 11}]
)
async def test_list_that_says_that_it_is_cut_off(service, client, more, monkeypatch):
    """It proves no absence, even with fewer webhooks than were asked for: the create is not sent again."""

    def cut(call, payload, *message, **told):
        answer = success(call, payload, *message, **told)
        return (
            replace(answer, body=answer.body | {"data": [], **more})
            if isinstance(payload, list)
            else answer
        )

    success = Call.success
    monkeypatch.setattr(Call, "success", cut)
    service.script("webhooks.create", "apply, then reset")
    outcome = await create(client).outcome()

    assert (outcome.verdict, outcome.evidence.cause) == (Verdict.UNKNOWN, "list full")
    assert len(effects(service)) == service.arrivals("webhooks.create") == 1


@pytest.mark.parametrize("is_async", [False, True])
async def test_secret_is_passed_on_before_the_outcome(service, is_async):
    """``Client(on_secret=…)`` gets the key and the webhook of each create; a lost secret is no call."""
    got = []

    async def later(key, webhook):
        await asyncio.sleep(0)
        got.append((key, webhook.secret))

    def at_once(key, webhook):
        got.append((key, webhook.secret))

    async with client_of(service, on_secret=later if is_async else at_once) as client:
        outcome = await create(client).outcome()
        service.script("webhooks.create", "apply, then reset")
        lost = await create(client, "https://me.example/other", tag=True).outcome()
    assert got == [(outcome.intent.key, outcome.value.secret)]
    assert (outcome.secret, lost.secret) == ("delivered", "lost")


async def test_hook_of_secrets_that_is_no_function(service):
    """It is refused when the client is made."""
    with pytest.raises(
        ConfigurationError, match="on_secret: must be a function, not a str"
    ):
        client_of(service, on_secret="secrets.jsonl")


@pytest.mark.parametrize("key", [None, "order-17"])
async def test_secret_that_is_not_text(tmp_path, key):
    """The write is applied, and ``on_secret`` is not called."""
    hook = {"id": "wh_1", "url": "https://w.example/", "events": [], "secret": 5}

    async def answer(request):
        data = hook if request.method == "POST" else []
        return web.json_response({"success": True, "data": data, "timestamp": 1})

    app, got = web.Application(), []
    app.router.add_route("*", "/v2/webhooks", answer)
    async with TestServer(app, host="127.0.0.1") as server:
        settings = {
            "journal": tmp_path / "calls.db",
            "on_secret": lambda *given: got.append(given),
        }
        async with Client(
            str(server.make_url("/v2")), ApiKey("eyJ.a.b"), **settings
        ) as client:
            write = client.webhooks.create(
                url="https://w.example/", events=["invoice.created"]
            )
            outcome = await (write.keyed(key) if key else write).outcome()
    assert (outcome.verdict, got) == (Verdict.APPLIED, [])


async def test_raw_create_is_a_stranger_to_the_next_one(service, client):
    """The answer to a raw create gave the id to that one, so the create of a method did not make it."""
    await client.webhooks.list(limit=100)
    body = {"url": URL, "events": ["invoice.created"]}
    made = await client.write("POST", "/webhooks", json=body)
    service.script("webhooks.create", "reset", "pass")
    outcome = await create(client, tag=False).outcome()

    assert outcome.verdict is Verdict.APPLIED, outcome.explain()
    assert [entry.target for entry in effects(service)] == [
        made["id"],
        outcome.value.id,
    ]


async def test_raw_create_is_a_stranger_to_an_intent_that_another_client_settles(
    service, client
):
    """The intent of the create has it, for a client that knows of no claim."""
    await client.webhooks.list(limit=100)
    body = {"url": URL, "events": ["invoice.created"]}
    await client.write("POST", "/webhooks", json=body)
    service.script("webhooks.create", "hang")
    running = asyncio.create_task(create(client, tag=False).outcome())
    await service.arrived("webhooks.create", 2)
    await cancel(running)
    [intent] = client.unsettled
    async with client_of(service) as other:
        outcome = await other.settle(intent)

    assert outcome.verdict is Verdict.NOT_APPLIED, outcome.explain()
    assert len(effects(service)) == 1


async def test_raw_create_is_not_the_effect_of_an_earlier_one(service, client):
    """What the answer to a raw create shows is claimed: a create that was in doubt before it made another."""
    await client.webhooks.list(limit=100)
    service.script("webhooks.create", "hang", "pass")
    first = create(client, tag=False)
    running = asyncio.create_task(first.outcome())
    await service.arrived("webhooks.create", 1)
    await cancel(running)
    body = {"url": URL, "events": ["invoice.created"]}
    made = await client.write("POST", "/webhooks", json=body)
    outcome = await first.outcome()

    assert outcome.verdict is Verdict.APPLIED, outcome.explain()
    assert [entry.target for entry in effects(service)] == [
        made["id"],
        outcome.value.id,
    ]
