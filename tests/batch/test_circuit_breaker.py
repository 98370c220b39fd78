"""Batches during an outage or with a refused credential, judged by the simulator's ledger."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import count, pairwise
from types import SimpleNamespace

import attrs
import pytest
from yarl import URL

from invsvc_async import (
    ApiKey,
    BatchStoppedError,
    NotSentError,
    Timeouts,
    TokenProvider,
    Verdict,
)
from invsvc_async.batch import Batch, Progress, circuit_breaker
from invsvc_async.batch.circuit_breaker import CircuitBreaker
from invsvc_async.cli import progress as bar
from invsvc_async.client import options_of
from invsvc_async.reconcile.history import Attempt, End
from invsvc_async.simulator import Simulator
from invsvc_async.simulator.state import ServiceClock
from invsvc_async.transport.exchange import Exchange
from invsvc_async.writes import state_reads
from tests.batch.conftest import POLICY, client_of
from tests.batch.writing import all_of, creates, made_once, run_all
from tests.support.door import Door
from tests.support.virtual_time import LoopClock
from tests.support.waiting import until

pytestmark = pytest.mark.steady_time

CLOCK = LoopClock(rate=20)


@pytest.fixture
async def service():
    """Yield a simulator whose clock is as fast: the absence of a write proves nothing if clocks disagree."""
    now = CLOCK.now
    async with Simulator(
        clock=ServiceClock(wall=lambda: 1_780_000_000.0 + now(), steady=now)
    ) as running:
        yield running


def fast_client_of(service, **settings):
    """Make a client with that clock, whose writes have half a minute of real time for a verdict."""
    patient = attrs.evolve(POLICY, deadline=600.0)
    return client_of(service, **{"clock": CLOCK, "reconcile": patient, **settings})


@asynccontextmanager
async def behind_door(service, **settings):
    """Yield a client that reaches *service* through a relay, and the relay."""
    door = Door(service)
    await door.open()
    try:
        place = SimpleNamespace(base_url=door.base_url, api_key=service.api_key)
        async with fast_client_of(place, **settings) as client:
            yield client, door
    finally:
        await door.shut()


async def ended(running, service, many, patience=300):
    """Wait for the results of a run: all of its *many* creates are applied, and the ledger has each once."""
    async with asyncio.timeout(patience):
        results = await running
    assert [result.verdict for result in results] == ["applied"] * many
    assert made_once(service) == many


async def paused(batch, why=""):
    """Wait until the run of *batch* is paused because of *why* and no probe is due, and return its progress."""
    return await until(
        lambda: is_paused(batch.progress, why) and batch.progress, within=300
    )


def is_paused(progress, why):
    return (
        progress is not None
        and why in (progress.paused or "")
        and progress.next_probe not in (None, 0.0)
    )


@pytest.mark.parametrize("first", [0, 5])
async def test_refused_connections_use_up_no_write(service, journal, first):
    """A service that is away, from the start or in the middle, costs no write. All are applied once it is back."""
    async with behind_door(service) as (client, door):
        if not first:
            await door.shut()
        async with Batch.open(journal, client, concurrency=8) as batch:
            running = asyncio.create_task(all_of(batch, creates(client, 60)))
            if first:
                await service.arrived("webhooks.create", first)
                await door.shut()
            # not yet, if a slow attempt timed out before
            progress = await paused(batch, "connection failed")
            await asyncio.sleep(0.5)  # sleeps: 10 s of the client's clock
            assert batch.progress.verdicts.keys() <= {Verdict.APPLIED}
            await door.open()
            await ended(running, service, 60)
            assert batch.progress.paused is None
            assert (await batch.summary()).verdicts == {Verdict.APPLIED: 60}
    assert "cannot be reached (connection failed)" in progress.paused
    assert progress.next_probe > 0


async def test_outage_keeps_the_order_of_one_thing(service, path):
    """Updates of one webhook are applied in their order, though the first was put back."""
    async with behind_door(service) as (client, door):
        hook = await client.webhooks.create(
            url="https://one.example", events=["invoice.created"]
        )
        await door.shut()
        async with Batch.open(path, client) as batch:
            writes = [
                client.webhooks.update(hook.id, description=f"version {n}")
                for n in range(4)
            ]
            running = asyncio.create_task(all_of(batch, writes))
            await paused(batch)
            await door.open()
            async with asyncio.timeout(300):
                await running
    effects = service.ledger.effects("webhooks.update")
    assert [entry.body["description"] for entry in effects] == [
        f"version {n}" for n in range(4)
    ]


async def test_killed_while_paused(service, path):
    """What was put back is to do for the next run, which sends all of it."""
    async with behind_door(service) as (client, door):
        await door.shut()
        async with Batch.open(path, client, concurrency=4) as batch:
            running = asyncio.create_task(all_of(batch, creates(client, 10)))
            await paused(batch)
            await batch.stop(0)
            assert await running == []
            assert not (await batch.summary()).verdicts
        await door.open()
        await ended(run_all(path, client, creates(client, 10)), service, 10)


async def test_expired_token_is_asked_for_anew(service, path):
    """A provider that has no fresh token yet pauses the batch; with the fresh one all writes are applied."""
    tokens, asked = [service.issue_oauth_token()], []

    async def source():
        asked.append(tokens[-1])
        return tokens[-1]

    async with (
        fast_client_of(
            service, credential=TokenProvider(source, kind="oauth_token")
        ) as client,
        Batch.open(path, client, concurrency=8) as batch,
    ):
        running = asyncio.create_task(all_of(batch, creates(client, 60)))
        await service.arrived("webhooks.create", 10)
        service.expire(tokens[0])
        progress = await paused(batch)
        tokens.append(service.issue_oauth_token())
        await ended(running, service, 60)
    assert "refuses the credential (HTTP 401)" in progress.paused
    assert asked[-1] == tokens[-1]


@pytest.mark.parametrize("first", [True, False])
async def test_provider_that_hangs(service, path, caplog, monkeypatch, first):
    """As long as a token is awaited, the progress says so; a pause because of it does not blame the service."""
    monkeypatch.setattr(state_reads, "READ_TIME", 3.0)
    tokens, may_answer = [service.issue_oauth_token()], asyncio.Event()

    async def source():
        if first or len(tokens) > 1:
            await may_answer.wait()
        return tokens[-1]

    provider = TokenProvider(source, kind="oauth_token")
    hurried = fast_client_of(
        service, credential=provider, timeout=Timeouts(attempt=3.0, call=6.0)
    )
    async with hurried as client, Batch.open(path, client, concurrency=4) as batch:
        running = asyncio.create_task(all_of(batch, creates(client, 20)))
        if not first:
            await service.arrived("webhooks.create", 4)
            tokens.append(service.issue_oauth_token())
            service.expire(tokens[0])
        awaited = "a token of TokenProvider's source is awaited"
        await until(lambda: batch.progress and batch.progress.paused)
        assert (batch.progress.paused, batch.progress.next_probe) == (awaited, None)
        await until(lambda: "the batch is paused" in caplog.text)
        may_answer.set()
        await ended(running, service, 20)
    assert (
        "source returned no token" if first else "refuses the credential"
    ) in caplog.text
    assert "cannot be reached" not in caplog.text


async def test_provider_that_fails_while_a_write_is_settled(service, path):
    """A write in doubt is settled once there is a token, however long the provider has none; it is not unknown."""
    tokens, failures = [service.issue_oauth_token()], []

    async def source():
        if len(tokens) == 1 and service.arrivals("webhooks.create"):
            failures.append("no")
            raise OSError("no")
        return tokens[-1]

    provider = TokenProvider(source, kind="oauth_token")
    service.script("webhooks.create", "apply, then hang")
    hurried = client_of(
        service, credential=provider, clock=LoopClock(rate=20), timeout=Timeouts(attempt=0.3),
        reconcile=attrs.evolve(POLICY, deadline=10.0),
    )  # fmt: skip
    async with hurried as client, Batch.open(path, client) as batch:
        running = asyncio.create_task(all_of(batch, creates(client, 1)))
        await service.arrived("webhooks.create")
        service.expire(tokens[0])
        assert "the source failed with OSError" in (await paused(batch)).paused
        assert failures
        tokens.append(service.issue_oauth_token())
        await ended(running, service, 1)
    assert service.arrivals("webhooks.create") == 1


@pytest.mark.parametrize("way", ["expire", "revoke"])
async def test_refused_key_ends_the_run_in_words(service, path, way):
    """Without another token the run ends. No write is marked as refused, and a run with a new key sends them."""
    async with (
        client_of(service) as client,
        Batch.open(path, client, concurrency=8) as batch,
    ):
        running = asyncio.create_task(all_of(batch, creates(client, 60)))
        await service.arrived("webhooks.create", 10)
        getattr(service, way)(service.api_key)
        async with asyncio.timeout(300):
            with pytest.raises(
                BatchStoppedError, match="credential: the service refuses"
            ):
                await running
        summary = await batch.summary()
        assert summary.verdicts.keys() == {Verdict.APPLIED}
        assert summary.done < 60
    other = client_of(service, credential=ApiKey(service.issue_key()))
    async with other as client, Batch.open(path, client, same_mode=True) as batch:
        await all_of(batch, creates(client, 60))
        assert (await batch.summary()).verdicts == {Verdict.APPLIED: 60}
    assert made_once(service) == 60


async def test_write_that_alone_is_refused(service, client, path):
    """A refusal that a probe with the same credential does not confirm stays with its write."""
    bad = client.for_team("team_none").webhooks.create(
        url="https://bad.example", events=["invoice.created"]
    )
    async with asyncio.timeout(300), Batch.open(path, client) as batch:
        results = await all_of(batch, [bad.keyed("bad"), *creates(client, 10)])
    assert {result.key: result.verdict for result in results if not result.applied} == {
        "bad": "refused"
    }
    assert made_once(service) == 10


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("503", "the service answers HTTP 503"),
        ("reset", "the service does not answer"),
        ("hang", "the service does not answer"),
    ],
)
async def test_failures_in_a_row(service, path, caplog, end, words):
    """Writes that all fail after they were sent pause the batch. None counts as unsent: each is applied once."""
    attempt = Timeouts(attempt=20.0 if end == "503" else 3.0)
    # one write may meet several of the failures
    often = attrs.evolve(POLICY, deadline=600.0, max_resends=4)
    async with fast_client_of(service, timeout=attempt, reconcile=often) as client:
        # Writes that hang for a while let others begin, and these hang too.
        service.script(
            "webhooks.create",
            *[f"apply, then {end}", end] * (8 if end == "hang" else 4),
        )
        service.script("webhooks.list", *["503"] * 4)
        await ended(
            run_all(path, client, creates(client, 40), concurrency=8), service, 40
        )
    assert f"the batch is paused: {words}" in caplog.text


async def test_failures_of_writes_that_began_before_others_were_answered(
    service, path, caplog
):
    """Writes that hang at the end of a batch do not pause it: later ones were answered meanwhile."""
    async with fast_client_of(service, timeout=Timeouts(attempt=3.0)) as client:
        # 40: until enough are sent at once
        service.script("webhooks.create", *["pass"] * 40, *["hang"] * 5)
        await ended(
            run_all(path, client, creates(client, 60), concurrency=16), service, 60
        )
    assert service.arrivals("webhooks.create") == 65
    assert "the batch is paused" not in caplog.text


def exchange_of(began, ended, end=End.LOST, status=None):
    """Make the record of a request that began at *began*, and ended just now."""
    made = Exchange(
        method="POST",
        url=URL("https://service.example/"),
        headers={},
        end=end,
        status=status,
    )
    made.started = began
    made.ended = ended
    return made


@asynccontextmanager
async def breaking(service):
    """Yield a closed breaker, and a function that tells it of a request: when it began, and how it ended."""
    async with fast_client_of(service) as client:
        breaker = CircuitBreaker(
            options_of(client), on_change=lambda: None, on_stop=pytest.fail
        )
        numbers = count()

        def learn(began, **end):
            exchange = exchange_of(began, CLOCK.now(), **end)
            breaker.learn(f"row-{next(numbers)}", exchange)

        yield breaker, learn
        await breaker.close()


ANSWER = {"end": End.ANSWERED, "status": 200}


@pytest.mark.parametrize(
    ("failures", "pauses"),
    [
        ([9.0] * 20, False),
        ([9.0] * 20 + [11.0] * 4, False),
        ([9.0, 11.0] * 4 + [11.0], True),
        ([11.0] * 5, True),
    ],
)
@pytest.mark.parametrize("how", [{}, {"end": End.ANSWERED, "status": 503}])
async def test_only_failures_of_requests_begun_after_the_last_answered_one_pause(
    service, failures, pauses, how
):
    """Five in a row pause, of which none began before a request that was answered; whatever ended first."""
    async with breaking(service) as (breaker, learn):
        learn(10.0, **ANSWER)
        # it was slow: the last answer is not of the latest request
        learn(5.0, **ANSWER)
        for began in failures:
            learn(began, **how)
        assert (breaker.why is not None) is pauses


async def test_request_from_before_the_pause_that_fails_after_it(service):
    """It does not pause the batch again; the first failure of a request that began after the probe does."""
    async with breaking(service) as (breaker, learn):
        before = CLOCK.now()
        for _ in range(circuit_breaker.IN_A_ROW):
            learn(before)
        assert breaker.why is not None
        await until(lambda: breaker.why is None)
        learn(before)
        assert breaker.why is None
        assert not breaker.allows(1)  # no write was answered yet
        learn(CLOCK.now())
        assert breaker.why is not None


@pytest.mark.parametrize("answered_after", [True, False])
async def test_connection_that_fails_while_later_requests_are_answered(
    service, answered_after
):
    """The write is put back, and sent again at once: the batch does not pause."""
    async with behind_door(service) as (client, door):
        await door.shut()
        outcome = await client.webhooks.delete("wh_none").outcome()
    *_, attempt = [event for event in outcome.history if isinstance(event, Attempt)]
    async with breaking(service) as (breaker, learn):
        learn(attempt.started + (1.0 if answered_after else -1.0), **ANSWER)
        assert breaker.holds_back(outcome, 0)
        assert (breaker.why is None) is answered_after


async def test_write_that_left_too_late(service):
    """Its lease had ended, as on a machine that is slow: that says nothing of the service, and it is put back often."""
    async with behind_door(service) as (client, door):
        await door.shut()
        outcome = await client.webhooks.delete("wh_none").outcome()
    words = "webhooks.delete: the request was not sent: the time until which it may be sent had passed."
    late = attrs.evolve(outcome, error=NotSentError(words))
    async with breaking(service) as (breaker, _):
        assert breaker.holds_back(late, 50)
        assert breaker.why is None
        assert not breaker.holds_back(outcome, 50)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("html", "the service's answer cannot be read (HTTP 200)"),
        ("reset", "the service does not answer (connection lost)"),
        ("502", "the service answers HTTP 502"),
    ],
)
async def test_probe_that_shows_nothing(service, path, caplog, answer, words):
    """The service can be reached: the reason for the pause says what came instead of an answer."""
    async with fast_client_of(service) as client:
        service.script("webhooks.create", *["503"] * 8)
        service.script("webhooks.list", *["503"] * 4)
        service.script("webhooks.get", answer)
        await ended(
            run_all(path, client, creates(client, 20), concurrency=8), service, 20
        )
    assert f"the batch is paused: {words}" in caplog.text
    assert "cannot be reached" not in caplog.text


# without the other: 401, 403
@pytest.mark.parametrize("has", ["multipleIssuerAccounts", "suppliers"])
async def test_plan_that_lacks_a_feature(service, client, path, has):
    """The run ends in words, and no team is refused. Once the plan has the feature, each team is made once."""
    service.set_features(service.team, has)

    def teams():
        return (
            client.teams.create(legal_name=f"Team {n}").keyed(f"team-{n}")
            for n in range(9)
        )

    async with Batch.open(path, client, concurrency=2) as batch:
        with pytest.raises(
            BatchStoppedError, match=r"teams\.create: the plan lacks a feature"
        ):
            await all_of(batch, teams())
        assert (await batch.summary()).verdicts == {}
    assert service.arrivals("teams.create") <= 4
    service.set_features(service.team, "multipleIssuerAccounts", "suppliers")
    async with Batch.open(path, client) as batch:
        await all_of(batch, teams())
        assert (await batch.summary()).verdicts == {Verdict.APPLIED: 9}
    assert len(service.ledger.effects("teams.create")) == 9


async def test_credential_refused_while_a_write_is_settled(service, path):
    """A write that may have been sent is settled after the pause; it is neither unknown nor sent again."""
    service.script("webhooks.create", "apply, then reset")
    service.script("webhooks.list", "pass", *["401 raw"] * 3)
    async with fast_client_of(service) as client:
        await ended(run_all(path, client, creates(client, 1)), service, 1)
    assert service.arrivals("webhooks.create") == 1


async def test_long_outage_while_writes_are_settled(service, path):
    """Writes whose answers were lost stay open for as long as the service is away, though their deadline passes."""
    policy = attrs.evolve(POLICY, deadline=5.0)
    async with behind_door(service, reconcile=policy) as (client, door):
        service.script("webhooks.create", *["apply, then hang"] * 4)
        async with Batch.open(path, client, concurrency=4) as batch:
            running = asyncio.create_task(all_of(batch, creates(client, 8)))
            await service.arrived("webhooks.create", 4)
            await door.shut()
            await paused(batch)
            await asyncio.sleep(0.5)  # sleeps: 10 s of the client's clock
            assert not batch.progress.verdicts
            await door.open()
            await ended(running, service, 8)
    assert service.arrivals("webhooks.create") == 8


async def test_absence_that_is_proven_too_late(service, path, monkeypatch):
    """Writes that were lost without an effect are sent again, though the outage left no time for it."""
    # a probe is answered before the next read
    monkeypatch.setattr(circuit_breaker, "LONGEST_PAUSE", 0.5)
    async with behind_door(service) as (client, door):
        service.script("webhooks.create", *["hang"] * 4)
        async with Batch.open(path, client, concurrency=4) as batch:
            running = asyncio.create_task(all_of(batch, creates(client, 8)))
            await service.arrived("webhooks.create", 4)
            await door.shut()
            await paused(batch)
            await asyncio.sleep(1.1)  # sleeps: 22 of the 30 s that a write has
            await door.open()
            await ended(running, service, 8)


async def test_write_that_always_ends_in_500(service, path):
    """One write that the service cannot process does not keep the batch from its end."""
    async with fast_client_of(service) as client:
        service.script("webhooks.update", *["500"] * 2000)
        hook = await client.webhooks.create(
            url="https://one.example", events=["invoice.created"]
        )
        update = client.webhooks.update(hook.id, description="never").keyed("poison")
        async with asyncio.timeout(300), Batch.open(path, client) as batch:
            results = await all_of(batch, [update, *creates(client, 10)])
    assert {each.key: each.verdict for each in results if not each.applied} == {
        "poison": "not applied"
    }


@pytest.mark.parametrize("limit", [3, 0.1])
async def test_stop_after(service, client, path, limit):
    """The run stops after a number or a share of failures; the rest is to do."""
    service.script("webhooks.create", *["pass"] * 17, *["422"] * 80)
    async with Batch.open(path, client, concurrency=1, stop_after=limit) as batch:
        with pytest.raises(BatchStoppedError, match="stop_after: 3 of 20"):
            await all_of(batch, creates(client, 100))
        summary = await batch.summary()
    assert summary.verdicts == {Verdict.APPLIED: 17, Verdict.REFUSED: 3}
    assert service.arrivals("webhooks.create") == 20


async def test_probes_at_growing_intervals(service, path, monkeypatch):
    """The pauses double up to the longest; each probe is one read."""
    probes = []

    async def probe(_breaker, *, renews):
        probes.append(CLOCK.now())
        return "still away" if len(probes) < 9 else None

    # reaches: how often it probes; the door is shut, so that no request arrives
    monkeypatch.setattr(circuit_breaker.CircuitBreaker, "_probe", probe)
    monkeypatch.setattr(circuit_breaker, "LONGEST_PAUSE", 8.0)
    async with behind_door(service) as (client, door):
        await door.shut()
        async with Batch.open(path, client, concurrency=1) as batch:
            running = asyncio.create_task(all_of(batch, creates(client, 3)))
            await paused(batch)
            await door.open()
            await ended(running, service, 3)
    gaps = [later - earlier for earlier, later in pairwise(probes)]
    assert all(
        gap >= least * 0.75
        for gap, least in zip(gaps, [2, 4, 8, 8, 8, 8, 8, 8], strict=True)
    )


def test_bar_of_a_paused_batch():
    """It says why, and when the next probe is."""
    progress = Progress(
        done=3, skipped=0, under_way=0, settling=0, rate=1.0, seconds=1.0, verdicts={},
        paused="connection refused", next_probe=12.3,
    )  # fmt: skip
    assert bar._this_run(progress).endswith(
        "; paused: connection refused, next probe in 12 s"
    )
    waiting = attrs.evolve(progress, paused="a token is awaited", next_probe=None)
    assert bar._this_run(waiting).endswith("; paused: a token is awaited")


async def test_refusal_of_the_credential_that_the_client_knows(service, path):
    """The user has settled the write, and the token was refused: it is put back, and then sent."""
    hook = service.seed_webhook(description="before")
    service.script("webhooks.update", "reset")
    service.script("webhooks.get", "pass", "403")
    async with fast_client_of(service) as client, Batch.open(path, client) as batch:
        [unknown] = await all_of(
            batch, [client.webhooks.update(hook.id, description="x").keyed("a")]
        )
        refused = Attempt(started=0.0, ended=0.0, end=End.ANSWERED, status=401)
        known = attrs.evolve(
            unknown.outcome, verdict=Verdict.REFUSED, history=(refused,)
        )
        options_of(client).core.writes.keep_ended(known.started_as.identity, known)
        await batch.retry(verdict=Verdict.UNKNOWN)
        [again] = await all_of(batch)
    assert (unknown.verdict, again.verdict) == (Verdict.UNKNOWN, Verdict.APPLIED)
