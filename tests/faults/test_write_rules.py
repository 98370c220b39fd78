"""The other rules of writes: readers of one's own, reminders, not sent, limited, echoes, tokens, hooks."""

import asyncio
import logging
from uuid import uuid4

import attrs
import pytest

from invsvc_async import (
    Absent,
    AmbiguousWriteError,
    ApiKey,
    Applied,
    CallOptions,
    Client,
    ConfigurationError,
    DeadlineExceededError,
    Holds,
    Intent,
    InvalidRequestError,
    NotFoundError,
    NotSentError,
    Outcome,
    RateLimitedError,
    ReconcilePolicy,
    Superseded,
    Timeouts,
    TokenProvider,
    Verdict,
    WriteNotAppliedError,
    WriteSupersededError,
    readers,
)
from invsvc_async.client import options_of
from invsvc_async.models import Team
from invsvc_async.simulator import replies
from invsvc_async.writes.state_reads import StateReader
from tests.faults.conftest import SHORT, client_of
from tests.support.virtual_time import LoopClock

pytestmark = pytest.mark.every_python


def effects(service, operation):
    return [
        entry for entry in service.ledger.effects(operation) if entry.by == "client"
    ]


# --- writes without a read in the specification


async def test_team_in_doubt_without_a_reader_is_unknown_at_once(service, client):
    """Nothing can tell: UNKNOWN, one arrival, the intent kept."""
    service.script("teams.create", "apply, then reset")
    with pytest.raises(AmbiguousWriteError) as caught:
        await client.teams.create(legal_name="Acme")
    assert service.arrivals("teams.create") == 1
    assert [intent.key for intent in client.unsettled] == [caught.value.intent.key]
    assert "client.settle(intent, reader=" in str(caught.value)


@pytest.mark.parametrize("way", ["the same client", "another client"])
@pytest.mark.parametrize(("step", "sends"), [("apply, then reset", 1), ("reset", 2)])
async def test_reader_that_the_write_did_not_have(service, client, way, step, sends):
    """It settles and resumes the write, as the error of the write says."""

    async def reader(client, intent):
        asked.append(intent.key)
        await client.webhooks.list()
        found = effects(service, "teams.create")
        return Applied({"id": found[0].target}) if found else Absent()

    asked = []
    await client.webhooks.list()  # shows the service's clock
    service.script("teams.create", step)
    first = await client.teams.create(legal_name="Acme").outcome()
    async with client_of(service) as other:
        settler = client if way == "the same client" else other
        intent = (
            first.intent
            if settler is client
            else Intent.from_json(first.intent.to_json())
        )
        settled = await settler.settle(intent, reader=reader)
        resumed = await settler.resume(intent, reader=reader).outcome()

    assert (first.verdict, resumed.verdict) == (Verdict.UNKNOWN, Verdict.APPLIED)
    assert settled.verdict is (Verdict.APPLIED if sends == 1 else Verdict.NOT_APPLIED)
    assert (
        service.arrivals("teams.create"),
        len(effects(service, "teams.create")),
    ) == (sends, 1)
    assert set(asked) == {first.intent.key}


@pytest.mark.parametrize(
    ("way", "verdict"),
    [("the same client", Verdict.NOT_APPLIED), ("another client", Verdict.UNKNOWN)],
)
async def test_absence_of_a_post_that_was_sent_at_an_unknown_time(
    service, client, way, verdict
):
    """Only the client that sent it knows how long ago that was; a thing may have been made and deleted since."""

    async def reader(client, _intent):
        await client.webhooks.list()
        return Absent()

    service.script("teams.create", "reset")
    first = await client.teams.create(legal_name="Acme").outcome()
    intent = Intent.from_json(first.intent.to_json())
    async with client_of(service) as other:
        settler = client if way == "the same client" else other
        settled = await settler.settle(intent, reader=reader)

    assert settled.verdict is verdict
    assert settled.evidence.cause == (
        "too long ago" if verdict is Verdict.UNKNOWN else "only read"
    )


async def test_own_reader_settles_and_its_absence_obeys_the_window(service, client):
    """What the caller's reader finds decides; its absence counts only when it looked after the window."""
    asked = []

    async def reader(_client, intent):
        asked.append(intent.key)
        found = effects(service, "teams.create")
        return Applied({"id": found[0].target}) if found else Absent()

    service.script("teams.create", "reset")
    outcome = await client.teams.create(legal_name="Acme", reader=reader).outcome()

    assert outcome.verdict is Verdict.APPLIED
    assert len(effects(service, "teams.create")) == 1
    assert service.arrivals("teams.create") == 2
    assert len(asked) >= 2


@pytest.mark.parametrize("finding", [Applied, Holds])
@pytest.mark.parametrize("form", [dict, Team], ids=["plain data", "a model"])
async def test_value_of_what_an_own_reader_finds(service, client, finding, form):
    """A model is given as it is, and plain data as the model of the write."""

    async def reader(_client, _intent):
        return finding(Team(id="team_9") if form is Team else {"id": "team_9"})

    service.script("teams.create", "apply, then reset")
    team = await client.teams.create(legal_name="Acme", reader=reader)

    assert isinstance(team, Team)
    assert (team.id, team.problems) == ("team_9", ())


@pytest.mark.parametrize("finding", [Applied, Holds])
@pytest.mark.parametrize("value", ["team_9", ["team_9"], 9])
async def test_value_of_a_reader_that_is_no_object(service, client, finding, value):
    """It is the value of the outcome, and of the outcome's stored form."""

    async def reader(_client, _intent):
        return finding(value)

    service.script("teams.create", "apply, then reset")
    outcome = await client.teams.create(legal_name="Acme", reader=reader).outcome()

    assert (outcome.verdict, outcome.value) == (Verdict.APPLIED, value)
    assert Outcome.from_json(outcome.to_json()).value == value


def test_reader_that_cannot_be_called(service, client):
    """It is refused before anything is sent, because it could not settle the write afterwards."""
    with pytest.raises(InvalidRequestError, match="reader: "):
        client.teams.create(legal_name="Acme", reader=5)


@pytest.mark.parametrize("finding", [Superseded("somebody else"), Absent()])
async def test_own_reader_decides_the_other_verdicts(service, client, finding):
    """Superseded raises so; an absence with no re-send allowed is NOT_APPLIED."""

    async def reader(_client, _intent):
        return finding

    service.script("teams.create", "reset")
    write = client.teams.create(legal_name="Acme", reader=reader).with_policy(
        resend="never"
    )
    expected = (
        WriteSupersededError
        if isinstance(finding, Superseded)
        else WriteNotAppliedError
    )
    with pytest.raises(expected):
        await write


async def raising(_client, _intent):
    raise LookupError("no such thing")


async def hanging(_client, _intent):
    await asyncio.Event().wait()


async def talking_nonsense(_client, _intent):
    return "done, I think"


@pytest.mark.parametrize("reader", [raising, talking_nonsense])
async def test_broken_reader_ends_unknown_and_never_sends(
    service, client, reader, caplog
):
    """A reader that raises, or gives no finding, is a failed read: never evidence, never a send."""
    service.script("teams.create", "apply, then reset")
    write = client.teams.create(legal_name="Acme", reader=reader)
    outcome = await write.with_policy(SHORT, deadline=1.0).outcome()

    assert outcome.verdict is Verdict.UNKNOWN
    assert service.arrivals("teams.create") == 1
    assert "reader" in caplog.text


async def test_hanging_reader_is_given_up(service, client, monkeypatch):
    """A reader that hangs is bounded in time."""
    monkeypatch.setattr("invsvc_async.writes.state_reads.READ_TIME", 0.1)
    service.script("teams.create", "apply, then reset")
    write = client.teams.create(legal_name="Acme", reader=hanging)
    async with asyncio.timeout(300):
        outcome = await write.with_policy(SHORT, deadline=1.0).outcome()
    assert outcome.verdict is Verdict.UNKNOWN


async def test_invoice_by_its_idempotency_key(service, client):
    """The list filters exactly on the key, so an unlisted write that carries one is settled by it."""
    key = "order-17"
    service.script("invoices.income_batch", "apply, then reset")
    body = {"invoices": [{"idempotency_key": key, "total": 1}]}
    reader = readers.invoice_by_idempotency_key("egress", key)
    outcome = await client.write(
        "POST", "/invoices/income/batch", json=body, reader=reader
    ).outcome()
    assert outcome.verdict is Verdict.APPLIED, outcome.explain()
    assert service.arrivals("invoices.income_batch") == 1


# --- reminders


async def test_reminder_is_read_until_it_is_certain(service, client):
    """The same UUID is read until the caller's `until` holds; nothing is sent."""
    operation_id = str(uuid4())
    payment = "pay_1"
    service.seed_reminder(payment, operation_id)
    seen = []

    def until(operation):
        seen.append(operation)
        return len(seen) >= 2

    await client.payments.settle_reminder(payment, operation_id, until=until, timeout=5)
    assert service.arrivals("payments.reminder_operation") == 2
    assert not service.ledger.entries


async def test_reminder_out_of_time(service, client):
    """Time that runs out is DeadlineExceededError, never a guess."""
    operation_id = str(uuid4())
    service.seed_reminder("pay_1", operation_id)
    with pytest.raises(DeadlineExceededError):
        await client.payments.settle_reminder(
            "pay_1", operation_id, until=lambda _: False, timeout=0.3
        )


async def test_reminder_needs_a_version_4_uuid(service, client):
    """Another form is refused before anything is sent."""
    with pytest.raises(InvalidRequestError, match="operation_id"):
        await client.payments.settle_reminder(
            "pay_1", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", until=bool, timeout=1
        )
    assert service.arrivals() == 0


# --- not sent, limited


async def test_write_that_never_leaves_is_not_applied():
    """Nothing listens: tried again a few times, then NOT_APPLIED from a NotSentError."""
    base_url = "http://127.0.0.1:1/v2"
    async with Client(
        base_url, ApiKey("k"), timeout=Timeouts(call=1.0), clock=LoopClock()
    ) as client:
        outcome = await client.webhooks.delete("wh_1").outcome()
    assert outcome.verdict is Verdict.NOT_APPLIED
    assert isinstance(outcome.error, NotSentError)
    assert 2 <= outcome.attempts <= 4
    assert client.unsettled == ()


async def test_limited_write_is_raised_by_default(service, client):
    """429 is a definite no: one arrival, and retry_after is told."""
    service.script("webhooks.delete", "429 after 1")
    with pytest.raises(RateLimitedError) as caught:
        await client.webhooks.delete(service.seed_webhook().id)
    assert caught.value.retry_after == 1
    assert service.arrivals("webhooks.delete") == 1


async def test_limited_write_waits_when_told_to(service, client):
    """With wait_when_limited it is sent again after Retry-After."""
    service.script("webhooks.delete", "429 after 0.2")
    write = client.webhooks.delete(service.seed_webhook().id).with_policy(
        wait_when_limited=True
    )
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await write
    assert loop.time() - begun >= 0.2
    assert service.arrivals("webhooks.delete") == 2


@pytest.mark.parametrize("first", ["429 after 0.05", "401 raw"])
async def test_definite_no_before_the_doubt_is_no_resend(service, first):
    """What was refused for its rate, or for a stale token, leaves the re-send on proof where it was."""

    async def source():
        return service.api_key

    service.script("webhooks.create", first, "reset", "pass")
    async with client_of(
        service, credential=TokenProvider(source, kind="api_key")
    ) as client:
        await client.webhooks.list()
        if first == "401 raw":
            options_of(client).core.credential.ready = "Bearer stale"
        write = client.webhooks.create(
            url="https://me.example/in", events=["invoice.created"]
        )
        outcome = await write.with_policy(wait_when_limited=True).outcome()

    assert (outcome.verdict, outcome.attempts, outcome.resends) == (
        Verdict.APPLIED,
        3,
        1,
    )
    assert len(effects(service, "webhooks.create")) == 1


async def test_token_that_cannot_be_renewed(service):
    """The service's 401 stands: an outcome is told, not the source's failure raised."""
    tokens = iter([service.api_key])

    async def source():
        return next(tokens, None) or fail()

    def fail():
        raise OSError("down")

    service.script("webhooks.delete", "401 raw")
    async with client_of(
        service, credential=TokenProvider(source, kind="api_key")
    ) as client:
        outcome = await client.webhooks.delete(service.seed_webhook().id).outcome()

    assert outcome.verdict is Verdict.REFUSED
    assert outcome.error.status == 401
    assert service.arrivals("webhooks.delete") == 1


async def test_source_of_tokens_that_hangs(service):
    """It is waited for no longer than for an answer: nothing was sent, and the deadline is kept."""

    async def source():
        await asyncio.sleep(60)

    async with client_of(
        service, credential=TokenProvider(source, kind="api_key")
    ) as client:
        async with asyncio.timeout(300):
            outcome = await client.webhooks.delete("wh_1").outcome()
        with pytest.raises((NotSentError, DeadlineExceededError)):
            await client.with_options(
                timeout=Timeouts(attempt=0.05, call=0.2)
            ).webhooks.get("wh_1")

    assert outcome.verdict is Verdict.NOT_APPLIED
    assert service.arrivals("webhooks.delete") == 0


async def test_source_of_tokens_that_hangs_near_the_end_of_the_call(service):
    """A further try gets what is left of the call, so that all tries together keep its limit."""
    loop = asyncio.get_running_loop()

    async def source():
        await asyncio.Event().wait()

    credential, timeout = (
        TokenProvider(source, kind="api_key"),
        Timeouts(attempt=10.0, call=14.0),
    )
    async with client_of(service, credential=credential, timeout=timeout) as client:
        begun = loop.time()
        outcome = await client.write("POST", "/payments", json={}).outcome()

    assert (outcome.verdict, outcome.attempts) == (Verdict.NOT_APPLIED, 2)
    assert loop.time() - begun == pytest.approx(14.0, abs=0.5)


async def test_resend_that_is_refused_waits_for_no_token(service):
    """A 401 to a re-send is the verdict, which no fresh token changes."""
    fetched = []

    async def source():
        fetched.append(1)
        if len(fetched) > 1:
            await asyncio.Event().wait()
        return service.api_key

    hook = service.seed_webhook()
    service.script("webhooks.update", "reset", "401 raw")
    async with client_of(
        service, credential=TokenProvider(source, kind="api_key")
    ) as client:
        outcome = await client.webhooks.update(hook.id, description="new").outcome()

    assert (outcome.verdict, outcome.attempts, len(fetched)) == (Verdict.REFUSED, 2, 1)


async def test_reader_that_is_cancelled_by_itself(service, client):
    """It is a failed read, as any failure of the caller's code; cancelling the write is not caught by that."""
    failures = iter([asyncio.CancelledError(), None])

    async def reader(_client, _intent):
        if (failure := next(failures)) is not None:
            raise failure
        return Applied({"id": "team_9"})

    service.script("teams.create", "apply, then reset")
    outcome = await client.teams.create(legal_name="Acme", reader=reader).outcome()

    assert outcome.verdict is Verdict.APPLIED
    assert service.arrivals("teams.create") == 1


async def test_list_that_settles_does_not_wait_with_those_that_do_not(service, client):
    """A read before a write may stand in a full pool: one that settles has places of its own."""
    write = client.webhooks.create(
        url="https://me.example/in", events=["invoice.created"]
    )
    looks = StateReader(
        options_of(client), write.intent, lambda: write.intent, own=None
    )
    write.close()

    await asyncio.gather(
        looks.look("webhooks.list", lane="call"),
        looks.look("webhooks.list", lane="settle"),
    )

    assert service.arrivals("webhooks.list") == 2


async def test_credits_used_up_are_never_waited_for(service, client):
    """A 429 of another code, without Retry-After, is no rate limit."""
    service.script("webhooks.delete", "429 credits")
    write = client.webhooks.delete(service.seed_webhook().id).with_policy(
        wait_when_limited=True
    )
    with pytest.raises(RateLimitedError):
        await write
    assert service.arrivals("webhooks.delete") == 1


# --- echoes, and things that are gone


async def test_delete_of_what_was_gone_before_is_refused(service, client):
    """404 to the first send is a definite no."""
    with pytest.raises(NotFoundError):
        await client.webhooks.delete("wh_none")


async def test_update_of_a_webhook_that_somebody_deleted(service, client):
    """Gone, and still there in a read after the send: SUPERSEDED, not sent again."""
    hook = service.seed_webhook()
    service.script("webhooks.update", "reset")
    service.script("webhooks.get", "pass", "pass", "gone 404", "gone 404", "gone 404")
    outcome = (
        await client.webhooks.update(hook.id, description="mine")
        .with_policy(reads_lag=0.0)
        .outcome()
    )
    assert outcome.verdict is Verdict.SUPERSEDED
    assert service.arrivals("webhooks.update") == 1


async def test_update_of_a_webhook_that_is_gone_at_once(service, client):
    """Gone in each read since the send: it may have been deleted before, so UNKNOWN, not sent again."""
    hook = service.seed_webhook()
    service.script("webhooks.update", "reset")
    service.script("webhooks.get", "pass", *["gone 404"] * 9)
    outcome = await client.webhooks.update(hook.id, description="mine").outcome()
    assert outcome.verdict is Verdict.UNKNOWN
    assert service.arrivals("webhooks.update") == 1


async def test_update_that_somebody_changed_meanwhile(service, client):
    """Neither the baseline nor ours, in all reads since the send: somebody may have changed it before, UNKNOWN."""
    hook = service.seed_webhook(description="before")
    service.script("webhooks.update", "reset")

    async def somebody():
        await service.arrived("webhooks.update")
        service.change_webhook(hook.id, description="somebody else's")

    outcome, _ = await asyncio.gather(
        client.webhooks.update(hook.id, description="mine").outcome(), somebody()
    )
    assert outcome.verdict is Verdict.UNKNOWN
    assert (
        "another write changed the webhook since its state before this one was seen"
        in outcome.message
    )
    assert (
        """(description: sent "mine", before "before", now "somebody else's")"""
        in outcome.message
    )
    assert not effects(service, "webhooks.update")


async def test_object_passed_is_the_baseline(service, client):
    """A webhook handed over as an object needs no read before the write, once the clock is known."""
    hook = await client.webhooks.get(service.seed_webhook(description="before").id)
    await client.webhooks.update(hook, description="mine")
    (update,) = service.ledger.entries
    between = [read for read in service.ledger.reads if read.number < update.number]
    assert len(between) == 1  # the caller's own; a later one only fetches the value


async def test_journey_that_is_published_is_unknown(service, client):
    """The read may show its published snapshot: equal or not, it tells nothing."""
    journey = service.seed_journey(status="published")
    service.script("journeys.update", "reset")
    outcome = await client.journeys.update(journey.id, name="mine").outcome()
    assert outcome.verdict is Verdict.UNKNOWN
    assert "snapshot" in outcome.message


async def test_deployment_without_a_read_of_journeys_warns_once(
    service, client, caplog
):
    """405 says nothing about the write: UNKNOWN, and one warning that names the setting."""
    service.script("journeys.get", *["405"] * 20)
    for _ in range(2):
        service.script("journeys.update", "apply, then reset")
        outcome = await client.journeys.update(
            service.seed_journey(status="draft").id, name="mine"
        ).outcome()
        assert outcome.verdict is Verdict.UNKNOWN
    warnings = [
        record for record in caplog.records if "journey_reader" in record.getMessage()
    ]
    assert len(warnings) == 1


async def test_journey_read_that_a_gateway_does_not_find(service, client, caplog):
    """It says nothing about the write, which is read again; the one warning names the setting."""
    service.script("journeys.update", "apply, then reset")
    service.script("journeys.get", *["gateway 404"] * 3)
    outcome = await client.journeys.update(
        service.seed_journey(status="draft").id, name="mine"
    ).outcome()

    assert outcome.verdict is Verdict.APPLIED
    warnings = [
        record for record in caplog.records if "journey_reader" in record.getMessage()
    ]
    assert len(warnings) == 1


async def test_own_reader_of_journeys(service, client):
    """A replacement that gives the journey is compared as the built-in read is."""

    async def reader(client, intent):
        return await client.journeys.get(intent.path["id"])

    service.script("journeys.update", "apply, then reset")
    policy = ReconcilePolicy(settle_after_loss=0.3, journey_reader=reader)
    outcome = (
        await client.with_options(reconcile=policy)
        .journeys.update(service.seed_journey(status="draft").id, name="mine")
        .outcome()
    )
    assert outcome.verdict is Verdict.APPLIED
    assert outcome.value.name == "mine"


@pytest.mark.parametrize("stored", ["a reader", None])
async def test_reader_of_journeys_that_is_passed_again(service, client, stored):
    """An intent that was stored has only its name, or that there is none; the one passed is used."""

    async def reader(passed, intent):
        asked.append(intent.key)
        return await passed.journeys.get(intent.path["id"])

    asked = []
    journey = service.seed_journey(name="before")
    service.script("journeys.update", "apply, then reset")
    write = client.journeys.update(journey.id, name="after")
    policy = (
        {"journey_reader": reader, "deadline": 0.0}
        if stored
        else {"journey_reader": None}
    )
    first = await write.with_policy(**policy).outcome()
    patient = attrs.evolve(first.intent.policy, deadline=SHORT.deadline)
    intent = Intent.from_json(attrs.evolve(first.intent, policy=patient).to_json())
    asked.clear()
    async with client_of(service) as other:
        outcome = await other.settle(intent, reader=reader)

    assert outcome.verdict is Verdict.APPLIED
    assert asked


async def test_journey_reads_switched_off(service, client):
    """Without a reader a journey in doubt is UNKNOWN at once."""
    service.script("journeys.update", "apply, then reset")
    policy = ReconcilePolicy(journey_reader=None)
    view = client.with_options(reconcile=policy)
    outcome = await view.journeys.update(
        service.seed_journey(status="draft").id, name="mine"
    ).outcome()
    assert outcome.verdict is Verdict.UNKNOWN
    assert service.arrivals("journeys.get") == 0


# --- tokens


async def test_write_is_sent_once_more_with_a_fresh_token(service):
    """A 401 of the authentication layer is a definite no: refreshed once, sent once more."""
    stale = service.issue_key()
    service.revoke(stale)
    tokens = iter([stale, service.api_key])
    asked = []

    async def source():
        asked.append(1)
        return next(tokens)

    async with client_of(
        service, credential=TokenProvider(source, kind="api_key")
    ) as client:
        service.script("webhooks.delete", "401 raw")
        await client.webhooks.delete(service.seed_webhook().id)
    assert len(effects(service, "webhooks.delete")) == 1


async def test_provider_is_asked_once_by_many(service):
    """However many wait for the first token, the source runs once."""
    asked = []

    async def source():
        asked.append(1)
        await asyncio.sleep(0.01)
        return service.api_key

    async with client_of(
        service, credential=TokenProvider(source, kind="api_key")
    ) as client:
        await asyncio.gather(*(client.webhooks.list() for _ in range(20)))
    assert asked == [1]


async def test_provider_that_fails_sends_nothing(service):
    """A source that raises is a failure in words, and no request leaves."""

    async def source():
        raise RuntimeError("vault sealed")

    async with client_of(
        service,
        credential=TokenProvider(source, kind="api_key"),
        timeout=Timeouts(call=0.5),
    ) as client:
        outcome = await client.webhooks.delete("wh_1").outcome()
        assert outcome.verdict is Verdict.NOT_APPLIED
        with pytest.raises(ConfigurationError, match="source"):
            await client.webhooks.list()
    assert service.arrivals() == 0


# --- seen by operators


async def test_hooks_and_log_tell_the_story(service, client, caplog):
    """Each attempt and each decision is told to the hooks, and logged in one line; none with a token."""
    attempts, decisions = [], []
    core = options_of(client).core
    core.on_attempt, core.on_decision = attempts.append, decisions.append
    service.script("webhooks.delete", "apply, then reset")
    with caplog.at_level(logging.DEBUG, "invsvc_async"):
        outcome = await client.webhooks.delete(service.seed_webhook().id).outcome()

    assert [report.operation for report in attempts].count("webhooks.delete") == 1
    assert decisions[-1].decision == "done"
    assert decisions[-1].verdict == "applied"
    assert len(
        [
            record
            for record in caplog.records
            if outcome.intent.key in record.getMessage()
        ]
    ) == len(decisions)
    assert service.api_key not in caplog.text
    assert "verdict: applied" in outcome.explain()


@pytest.mark.parametrize(
    ("step", "level"), [("pass", "DEBUG"), ("apply, then reset", "INFO")]
)
async def test_level_of_decisions(service, client, caplog, step, level):
    """The decisions about a write are DEBUG until an attempt is ambiguous, also if it reads first."""
    service.script("webhooks.create", step)
    with caplog.at_level(logging.DEBUG, "invsvc_async.writes"):
        write = client.webhooks.create(
            url="https://me.example/in", events=["invoice.created"]
        )
        await write.outcome()

    decisions = [
        record for record in caplog.records if write.intent.key in record.getMessage()
    ]
    before, later = decisions[:2], decisions[2:]
    assert before[1].getMessage().endswith(": send")
    assert {record.levelname for record in before} == {"DEBUG"}
    assert {record.levelname for record in later} == {level}


async def test_hook_that_fails_changes_nothing(service, caplog):
    """A hook's exception is logged, and the write goes on."""

    def broken(_report):
        raise LookupError("my own fault")

    async with client_of(service, on_attempt=broken) as client:
        await client.webhooks.delete(service.seed_webhook().id)
    assert "a hook of the client raised" in caplog.text


# --- the clock


async def test_time_of_a_gateway(service, monkeypatch):
    """The time in a gateway's own error is not the service's: it does not keep a write from being settled."""

    def page(status):
        body = {
            "timestamp": service.clock.now_ms() + 10_000,
            "status": status,
            "error": "Unavailable",
        }
        return replies.answer(status, body)

    monkeypatch.setattr(replies, "gateway_page", page)
    async with client_of(service) as client:
        await client.webhooks.list()
        service.script("webhooks.create", "apply, then 503")
        write = client.webhooks.create(
            url="https://me.example/in", events=["invoice.created"]
        )
        outcome = await write.outcome()

    assert outcome.verdict is Verdict.APPLIED


# --- the time of a call


@pytest.mark.parametrize("seconds", [0.5, 1.0, 1.3, 2.0, 8.0, 60.0])
async def test_reads_before_a_write_are_a_part_of_its_call(service, client, seconds):
    """Reads that hang take at most half of the call's time; the write is sent within the other half."""
    hook, loop = service.seed_webhook(), asyncio.get_running_loop()
    service.script("webhooks.get", *["hang"] * 3)
    begun = loop.time()
    options = CallOptions(timeout=seconds)
    outcome = await client.webhooks.update(
        hook.id, status="inactive", options=options
    ).outcome()

    assert outcome.verdict is Verdict.APPLIED
    assert outcome.history[-1].started - begun <= seconds / 2 + 0.01


@pytest.mark.parametrize("seconds", [0.5, 2.0, 60.0])
async def test_token_that_does_not_come_in_the_time_of_a_call(service, seconds):
    """The reads before the write wait for it, too: all together no longer than the call may take."""

    async def source():
        await asyncio.Event().wait()

    hook, loop = service.seed_webhook(), asyncio.get_running_loop()
    async with client_of(
        service, credential=TokenProvider(source, kind="api_key")
    ) as client:
        begun = loop.time()
        options = CallOptions(timeout=seconds)
        outcome = await client.webhooks.update(
            hook.id, status="inactive", options=options
        ).outcome()

    assert outcome.verdict is Verdict.NOT_APPLIED
    assert loop.time() - begun <= seconds + 0.01


async def test_write_that_never_left_and_is_awaited_again(service):
    """A write that was cancelled before it left has all of its time when it is awaited again, much later."""
    tokens = iter([RuntimeError("away"), service.api_key])

    async def source():
        token = next(tokens)
        if isinstance(token, Exception):
            raise token
        return token

    journey = service.seed_journey(status="draft")
    policy = attrs.evolve(SHORT, journey_reader=None)  # so that nothing is read before
    async with client_of(
        service, credential=TokenProvider(source, kind="api_key"), reconcile=policy
    ) as client:
        write = client.journeys.update(journey.id, name="mine")
        task = asyncio.create_task(write.outcome())
        await asyncio.sleep(0.05)  # in the pause before the next try
        task.cancel()
        await asyncio.wait([task])
        assert not client.unsettled
        await asyncio.sleep(60.0)
        outcome = await write.outcome()

    assert outcome.verdict is Verdict.APPLIED
