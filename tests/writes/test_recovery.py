"""Finding out later, or elsewhere, what became of a write that was sent: by reads alone."""

import asyncio

import attrs
import pytest

from invsvc_async import (
    ApiKey,
    Client,
    ConfigurationError,
    Intent,
    InvalidRequestError,
    OAuthToken,
    PersonToken,
    TokenProvider,
    Verdict,
)
from invsvc_async.client import options_of
from invsvc_async.simulator import Simulator
from tests.faults.conftest import SHORT, client_of
from tests.support.virtual_time import service_clock

pytestmark = pytest.mark.every_python

WRITES = {
    "webhooks.create": lambda client, _: client.webhooks.create(url="https://me.example/in", events=["invoice.created"]),
    "webhooks.update": lambda client, service: client.webhooks.update(service.seed_webhook().id, description="mine"),
    "webhooks.delete": lambda client, service: client.webhooks.delete(service.seed_webhook().id),
    "journeys.update": lambda client, service: client.journeys.update(service.seed_journey(status="draft").id, name="mine"),
}  # fmt: skip


async def cancel_in_flight(client, service, operation, step):
    """Send a write whose answer hangs, cancel it once it has arrived, and hand over its intent."""
    service.script(operation, step)
    task = asyncio.create_task(WRITES[operation](client, service))
    await service.arrived(operation)
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (intent,) = client.unsettled
    return Intent.from_json(intent.to_json())


def effects(service, operation):
    return [
        entry for entry in service.ledger.effects(operation) if entry.by == "client"
    ]


@pytest.mark.parametrize("operation", WRITES)
@pytest.mark.parametrize(
    ("step", "verdict"),
    [("apply, then hang", Verdict.APPLIED), ("hang", Verdict.NOT_APPLIED)],
)
async def test_settle_agrees_with_the_ledger_and_never_sends(
    service, operation, step, verdict
):
    """A client of another process tells truly what became of a cancelled write, and sends nothing."""
    async with client_of(service) as first:
        intent = await cancel_in_flight(first, service, operation, step)
    async with client_of(service) as second:
        outcomes = await asyncio.gather(second.settle(intent), second.settle(intent))

    assert [outcome.verdict for outcome in outcomes] == [verdict, verdict]
    assert len(effects(service, operation)) == (verdict is Verdict.APPLIED)
    assert service.arrivals(operation) == 1


@pytest.mark.parametrize("operation", WRITES)
@pytest.mark.parametrize("step", ["apply, then hang", "hang"])
async def test_resume_sends_again_only_on_proof(service, operation, step):
    """Resuming ends with exactly one effect, whether or not the first send had one."""
    async with client_of(service) as first:
        intent = await cancel_in_flight(first, service, operation, step)
    async with client_of(service) as second:
        outcome = await second.resume(intent).outcome()

    assert outcome.verdict is Verdict.APPLIED
    assert len(effects(service, operation)) == 1
    assert service.arrivals(operation) == (1 if step.startswith("apply") else 2)


async def test_settled_intent_leaves_the_unsettled(service, client):
    """A verdict takes the intent off the list of those whose fate is open."""
    intent = await cancel_in_flight(
        client, service, "webhooks.delete", "apply, then hang"
    )
    await client.settle(intent)
    assert client.unsettled == ()


async def test_settled_again_and_cut_off(service, client):
    """An intent whose verdict is known is not open again because a run of it was cancelled in the queue."""
    intent = await cancel_in_flight(
        client, service, "webhooks.update", "apply, then hang"
    )
    assert (await client.settle(intent)).verdict is Verdict.APPLIED
    service.script("webhooks.update", "hang")
    newer = client.webhooks.update(intent.path["id"], description="newer")
    sending = asyncio.create_task(newer.outcome())
    await service.arrived("webhooks.update", 2)
    # as a journal has it that another process has sent once more
    later = attrs.evolve(intent, sent=intent.sent * 2)
    settling = asyncio.create_task(client.settle(later))
    await asyncio.sleep(0.02)  # until it waits behind the newer one
    settling.cancel()
    await asyncio.wait([settling])
    assert settling.cancelled()

    assert intent.identity not in {each.identity for each in client.unsettled}
    sending.cancel()
    await asyncio.wait([sending])


async def test_intent_that_was_never_sent_counts_as_sent(service, client):
    """Outside a journal an intent without sends proves nothing: its create is unknown, for its time is."""
    write = client.webhooks.create(
        url="https://me.example/in", events=["invoice.created"]
    )
    outcome = await client.settle(write.intent)
    write.close()
    assert outcome.verdict is Verdict.UNKNOWN
    assert service.arrivals("webhooks.create") == 0


async def refusal(client, intent, **options):
    with pytest.raises(InvalidRequestError) as caught:
        await client.settle(intent, **options)
    return str(caught.value)


async def test_settle_refuses_another_base_url(service, client):
    """What is looked for at another service would seem not to have happened."""
    intent = await cancel_in_flight(client, service, "webhooks.delete", "hang")
    async with (
        Simulator(seed=8, clock=service_clock()) as other,
        client_of(other) as stranger,
    ):
        assert other.base_url in await refusal(stranger, intent)
        assert other.arrivals() == 0


@pytest.mark.parametrize("given", [None, {}, "{}", 5])
async def test_settle_and_resume_of_what_is_no_intent(client, given):
    """It is refused in words, which name the way from an intent's text."""
    with pytest.raises(InvalidRequestError, match=r"Intent\.from_json"):
        await client.settle(given)
    with pytest.raises(InvalidRequestError, match=r"Intent\.from_json"):
        client.resume(given)


async def test_settle_refuses_another_team(service):
    """A client that acts on one team does not settle what was for another, or for none that is named."""
    team = service.teams[1]
    async with client_of(service, team=team) as first:
        hook = service.seed_webhook(team=team)
        service.script("webhooks.delete", "hang")
        outcome = (
            await first.webhooks.delete(hook.id)
            .with_policy(resend="never", deadline=0.0)
            .outcome()
        )
        with pytest.raises(InvalidRequestError, match="team"):
            await first.for_team(service.teams[0]).settle(outcome.intent)
        with pytest.raises(InvalidRequestError, match="team"):
            await first.settle(
                attrs.evolve(
                    outcome.intent, scope=attrs.evolve(outcome.intent.scope, team=None)
                )
            )
        patient = attrs.evolve(outcome.intent, policy=options_of(first).reconcile)
        assert (await first.settle(patient)).verdict is Verdict.NOT_APPLIED


async def test_settle_refuses_a_key_of_another_mode(service, client):
    """
    A live intent and a test key would give a false "not applied", unless the caller says that it is the same.
    """
    intent = await cancel_in_flight(
        client, service, "webhooks.create", "apply, then hang"
    )
    async with client_of(service, credential=ApiKey(service.test_key)) as test_mode:
        before = service.arrivals()
        assert "same_mode=True" in await refusal(test_mode, intent)
        assert service.arrivals() == before
    async with client_of(service, credential=ApiKey(service.issue_key())) as rotated:
        assert "same_mode=True" in await refusal(rotated, intent)
        assert (await rotated.settle(intent, same_mode=True)).verdict is Verdict.APPLIED


@pytest.mark.parametrize("said", [False, True])
async def test_settle_refuses_a_mode_that_answers_contradict(service, client, said):
    """Where both sides have seen their mode, the words name both, whatever the caller says."""
    await client.journeys.update(
        service.seed_journey(status="draft").id, name="seen to be live"
    )
    intent = await cancel_in_flight(client, service, "webhooks.create", "hang")
    assert intent.scope.livemode is True
    async with client_of(service, credential=ApiKey(service.test_key)) as test_mode:
        await test_mode.journeys.update(
            service.seed_journey(status="draft", livemode=False).id,
            name="seen to be test",
        )
        assert "live data" in await refusal(test_mode, intent, same_mode=said)


async def test_settle_of_a_persons_intent_needs_the_callers_word(service):
    """A person's mode is a preference that may have changed since: elsewhere, only the caller knows."""
    async with client_of(
        service, credential=PersonToken(service.person_token)
    ) as person:
        intent = await cancel_in_flight(
            person, service, "webhooks.delete", "apply, then hang"
        )
        assert (await person.settle(intent)).verdict is Verdict.APPLIED
    async with client_of(
        service, credential=PersonToken(service.person_token)
    ) as later:
        assert "same_mode=True" in await refusal(later, intent)


async def test_settle_refuses_another_provider_of_tokens(service):
    """Two providers of one data mode may be of two teams, in one of which every write seems absent."""
    teams = service.teams[:2]
    journeys = [service.seed_journey(team=team) for team in teams]
    hook = service.seed_webhook(team=teams[0])

    def client_for(team):
        async def source():
            return service.issue_oauth_token(team=team)

        return client_of(service, credential=TokenProvider(source, kind="oauth_token"))

    async with client_for(teams[0]) as first, client_for(teams[1]) as second:
        for client, journey in zip((first, second), journeys, strict=True):
            await client.journeys.update(journey.id, name="seen to be live")
        service.script("webhooks.delete", "hang")
        outcome = (
            await first.webhooks.delete(hook.id)
            .with_policy(resend="never", deadline=0.0)
            .outcome()
        )
        intent = Intent.from_json(attrs.evolve(outcome.intent, policy=SHORT).to_json())
        assert "same_mode=True" in await refusal(second, intent)
        with pytest.raises(InvalidRequestError, match="same_mode=True"):
            second.resume(intent)
        assert (await first.settle(intent)).verdict is Verdict.NOT_APPLIED
        assert (await first.settle(intent)).verdict is Verdict.NOT_APPLIED


async def test_intent_holds_no_token(service):
    """Neither the token nor anything that reveals it is in an intent, a story or a repr."""
    async with Client(service.base_url, OAuthToken(service.oauth_token)) as client:
        outcome = await client.webhooks.delete(service.seed_webhook().id).outcome()
        texts = [
            outcome.intent.to_json(),
            outcome.to_json(),
            outcome.explain(),
            repr(outcome),
            repr(client),
        ]
    assert not [text for text in texts if service.oauth_token in text]


async def test_recover_leaves_what_is_not_its_own(service, tmp_path, caplog):
    """A journal's intent of another mode is not looked for in this one: it is named, and stays."""
    path = tmp_path / "journal.db"
    async with client_of(service, journal=path) as first:
        await cancel_in_flight(first, service, "webhooks.delete", "apply, then hang")
    async with client_of(
        service, journal=path, credential=ApiKey(service.test_key)
    ) as test_mode:
        assert await test_mode.recover() == []
        assert "left in the journal" in caplog.text
    async with client_of(service, journal=path) as again:
        (outcome,) = await again.recover()
    assert outcome.verdict is Verdict.APPLIED


@pytest.mark.parametrize("follow", ["settle", "resume"])
async def test_intent_that_is_taken_while_a_later_send_is_in_flight(
    service, client, follow
):
    """
    It waits for the send that is on the wire: the process that resumes it waits until then, and makes no
    second effect.
    """
    service.script("webhooks.create", "429 after 0.05", "late 0.15, then hang")
    write = client.webhooks.create(
        url="https://me.example/in", events=["invoice.created"], on_lost_secret="keep"
    )
    write = write.with_policy(wait_when_limited=True)
    running = asyncio.create_task(write.outcome())
    await service.arrived("webhooks.create", 2)
    intent = Intent.from_json(write.intent.to_json())

    assert [sent.end and sent.end.kind for sent in intent.sent] == ["not applied", None]
    async with client_of(service) as other:
        outcome = await (
            other.settle(intent)
            if follow == "settle"
            else other.resume(intent).outcome()
        )
    assert outcome.verdict is Verdict.APPLIED
    assert (await running).verdict is Verdict.APPLIED
    assert len(effects(service, "webhooks.create")) == 1


@pytest.mark.parametrize(
    ("operation", "again", "step"),
    [
        ("journeys.update", "in the next", "apply, then hang"),
        ("webhooks.update", "in this process", "hang"),
    ],
)
async def test_newer_write_beside_a_recovery_that_is_cut_off(
    service, tmp_path, operation, again, step
):
    """A verdict that was found is stored before a newer write is sent, which is not taken for somebody else's."""
    path = tmp_path / "journal.db"
    policy = attrs.evolve(
        SHORT, settle_after_loss=0.1, clock_slack=0.01, clock_band=0.05
    )
    async with client_of(service, journal=path, reconcile=policy) as first:
        intent = await cancel_in_flight(first, service, operation, step)
    async with client_of(service, journal=path, reconcile=policy) as dead:
        await cancel_in_flight(dead, service, "webhooks.create", "hang")
    async with client_of(service, journal=path, reconcile=policy) as second:
        # so that one of the two takes longer
        service.script("webhooks.list", *["503"] * 2)
        recovering = asyncio.create_task(second.recover())
        while not options_of(second).core.writes.ended:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
        recovering.cancel()
        await asyncio.wait([recovering])
        update = (
            second.journeys.update
            if operation == "journeys.update"
            else second.webhooks.update
        )
        await update(intent.path["id"], **dict.fromkeys(intent.body, "newer"))
        if again == "in this process":
            outcomes = await second.recover()
    if again == "in the next":
        async with client_of(service, journal=path, reconcile=policy) as third:
            outcomes = await third.recover()

    [verdict] = [
        each.verdict for each in outcomes if each.intent.operation == operation
    ]
    assert verdict is (Verdict.NOT_APPLIED if step == "hang" else Verdict.APPLIED)


@pytest.fixture
async def left_open(service, tmp_path):
    """Leave an update without an effect, then a create, in the journal of a dead process; return their intents."""
    intents = []
    for operation in ("journeys.update", "webhooks.create"):
        async with client_of(service, journal=tmp_path / "journal.db") as dead:
            intents.append(await cancel_in_flight(dead, service, operation, "hang"))
    return intents


async def settled_update(client):
    """Wait until the recovery of *client* has found out what became of one of the two."""
    while not options_of(client).core.writes.ended:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.01)


def verdict_of(intent, outcomes):
    [found] = [each for each in outcomes if each.intent.operation == intent.operation]
    return found.verdict


@pytest.mark.parametrize("moment", ["it has ended", "it is under way"])
async def test_resumed_while_a_recovery_goes_on(service, tmp_path, left_open, moment):
    """A recovery that ends later does not tell that it was not applied, when a resumption has applied it."""
    update, _ = left_open
    async with client_of(service, journal=tmp_path / "journal.db") as client:
        service.script("webhooks.list", *["503"] * 4)  # so that the create takes longer
        recovering = asyncio.create_task(client.recover())
        await settled_update(client)
        assert not recovering.done()
        if moment == "it is under way":
            service.script("journeys.update", "apply, then slow 9")
        resuming = asyncio.create_task(client.resume(update).outcome())
        if moment == "it has ended":
            assert (await resuming).applied
        else:
            await service.arrived("journeys.update", 2)
        outcomes = await recovering
        assert (await resuming).applied
    assert verdict_of(update, outcomes) is Verdict.APPLIED
    assert len(effects(service, "journeys.update")) == 1


async def test_resumed_while_verdicts_are_handed_over(service, tmp_path, left_open):
    """The hook that gets the verdicts of a recovery resumes a write whose verdict comes next: it is the new one."""
    update, create = left_open
    heard = []

    async def hear(outcome):
        heard.append(outcome)
        if len(heard) == 1:
            other = create if outcome.intent.operation == update.operation else update
            assert (await client.resume(other).outcome()).applied

    async with (
        client_of(service, journal=tmp_path / "journal.db") as client,
        client.recovering(every=60.0, on_outcome=hear),
    ):
        while len(heard) < 2:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
    assert [each.verdict for each in heard] == [Verdict.NOT_APPLIED, Verdict.APPLIED]
    assert len(service.ledger.effects()) == 1


async def test_write_that_waits_while_its_client_is_closed(service, tmp_path):
    """It is not stored as sent: what an older write still changes would count as somebody else's."""
    path, journey = tmp_path / "journal.db", service.seed_journey(status="draft")
    async with client_of(service, journal=path) as first:
        service.script("journeys.update", "late 0.3, then hang")
        older = asyncio.create_task(
            first.journeys.update(journey.id, name="older").outcome()
        )
        await service.arrived("journeys.update")
        older.cancel()
        await asyncio.wait([older])
    async with client_of(service, journal=path) as second:
        await second.journeys.get(journey.id)  # so that the service's clock is known
        newer = asyncio.create_task(
            second.journeys.update(journey.id, name="newer").outcome()
        )
        await asyncio.sleep(0.05)
    with pytest.raises(ConfigurationError, match="it is closed"):
        await newer
    await service.settled()
    async with client_of(service, journal=path) as third:
        outcomes = await third.recover()

    assert [(each.intent.body["name"], each.verdict) for each in outcomes] == [
        ("older", Verdict.APPLIED)
    ]
