"""
What the first screens of the README and of `embed.md` say, with a fault in every fourth answer.

What `embed.md` says of the applications is in `tests/examples/test_examples_faults.py`.
"""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from examples import shop
from invsvc_async import (
    AmbiguousWriteError,
    ApiKey,
    Client,
    ConfigurationError,
    PermissionDeniedError,
    ReconcilePolicy,
    SecretLostError,
    ServiceError,
    Timeouts,
    TokenProvider,
    TransportError,
    Verdict,
    WriteNotAppliedError,
    WriteSupersededError,
    events,
)
from invsvc_async.simulator import Faults, Simulator
from tests.events.bodies import SHARED, encoded, v2
from tests.faults.conftest import client_of
from tests.support.virtual_time import LoopClock, service_clock

README = Path(__file__).parents[2] / "README.md"
FAULTS = Faults(rate=0.25)
OF_READS_TOO = Faults(rate=0.25, reads=0.25)
AT_ONCE = Faults(rate=0.25, reads=0.25, late_up_to=0.05, hang=0.2)
QUICK = ReconcilePolicy(
    settle_after_error=0.3, settle_after_loss=0.6, deadline=60.0, reads_lag=0.1
)
SHORT = Timeouts(attempt=5.0, connect=5.0, call=20.0)
# How many effects a write with this verdict may have.
DONE = {
    Verdict.APPLIED: {1},
    Verdict.UNKNOWN: {0, 1},
    Verdict.NOT_APPLIED: {0},
    Verdict.REFUSED: {0},
}
WRITES = 120


def said_by(error):
    """Return the verdict of the README's table that *error* stands for."""
    by_class = {
        WriteNotAppliedError: Verdict.NOT_APPLIED,
        WriteSupersededError: Verdict.SUPERSEDED,
        AmbiguousWriteError: Verdict.UNKNOWN,
        SecretLostError: Verdict.APPLIED,
    }
    return next(
        (says for kind, says in by_class.items() if isinstance(error, kind)),
        Verdict.REFUSED,
    )


async def test_table_of_verdicts():
    """Each row does what it says: one effect if applied, none if not; a create may have lost its secret."""
    said = Counter()
    async with (
        Simulator(seed=25, faults=FAULTS, clock=service_clock()) as service,
        Client(service.base_url, ApiKey(service.api_key), clock=LoopClock()) as client,
    ):
        for number in range(WRITES):
            url = f"https://me.example/{number}"
            try:
                hook = await client.webhooks.create(url=url, events=["invoice.created"])
                says, kind = Verdict.APPLIED, "model"
                assert (hook.url, hook.secret is not None) == (url, True)
            except SecretLostError as error:
                says, kind = error.outcome.verdict, "no secret"
                found = error.webhook.url, error.outcome.secret, error.webhook.secret
                await client.webhooks.delete(error.webhook).outcome()
                hook = None
            except (ServiceError, WriteNotAppliedError, AmbiguousWriteError) as error:
                says, kind, hook = said_by(error), type(error).__name__, None
            said[kind] += 1
            assert kind != "no secret" or found == (url, "lost", None)
            effects = [
                e
                for e in service.ledger.effects("webhooks.create")
                if e.body["url"] == url
            ]
            assert (
                len(effects) == (says is Verdict.APPLIED) or says is Verdict.UNKNOWN
            ), (kind, effects)
            if hook is not None:
                await client.webhooks.delete(hook).outcome()
    assert said["model"] > WRITES / 2
    assert said["no secret"] > 0, said


ROWS = {
    Verdict.NOT_APPLIED: (["hang"], WriteNotAppliedError),
    Verdict.REFUSED: (["403"], PermissionDeniedError),
    Verdict.SUPERSEDED: (["hang"], WriteSupersededError),
    Verdict.UNKNOWN: (["apply, then hang"], AmbiguousWriteError),
}


# What a program of the page may raise; a table row or a read of the list.
NAMED = (
    WriteNotAppliedError,
    WriteSupersededError,
    AmbiguousWriteError,
    SecretLostError,
    ServiceError,
    TransportError,
)


@pytest.mark.parametrize("verdict", ROWS)
async def test_rows_that_raise(verdict):
    """Each of the other four rows of the table: what is raised, and what the ledger has."""
    steps, raised = ROWS[verdict]
    once = ReconcilePolicy(resend="never")
    async with (
        Simulator(seed=3, clock=service_clock()) as service,
        Client(
            service.base_url, ApiKey(service.api_key), clock=LoopClock(), reconcile=once
        ) as client,
    ):
        journey = service.seed_journey(name="before").id
        await client.journeys.get(journey)
        operation = (
            "sheets.save_mapping" if verdict is Verdict.UNKNOWN else "journeys.update"
        )
        service.script(operation, *steps)
        writing = client.sheets.save_mapping({"a": "b"})
        if operation == "journeys.update":
            writing.close()
            writing = client.journeys.update(journey, name="May")
        running = asyncio.ensure_future(writing.outcome())
        await service.arrived(operation, 1)
        if verdict is Verdict.SUPERSEDED:
            await asyncio.sleep(3.0)
            service.change_journey(journey, name="of somebody else")
        outcome = await running
        assert outcome.verdict is verdict, outcome.explain()
        with pytest.raises(raised):
            outcome.unwrap()
        own = [
            each
            for each in service.ledger.effects(operation)
            if each.body.get("name") != "of somebody else"
        ]
        assert len(own) == (verdict is Verdict.UNKNOWN)


@pytest.mark.real_time  # its journal has a thread
async def test_program_of_the_readme(tmp_path, monkeypatch, capsys):
    """It runs as printed, and again: it ends, or raises what the page names, and each write has the effect that is said."""
    text = README.read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(import asyncio.*?)```", text, re.DOTALL)
    ends = Counter()
    for seed in range(12):
        names = {}
        async with Simulator(seed=seed, faults=AT_ONCE) as service:
            journey = service.seed_journey(name="before").id
            monkeypatch.setenv("INVSVC_BASE_URL", service.base_url)
            monkeypatch.setenv("INVSVC_API_KEY", service.api_key)
            told = program.replace("jrn_1", journey).replace("asyncio.run(main())", "")
            told = told.replace(
                '"calls.db"',
                f'"{tmp_path}/calls{seed}.db", reconcile=QUICK, timeout=SHORT',
            )
            names |= {"QUICK": QUICK, "SHORT": SHORT}
            exec(compile(told, "README.md", "exec"), names)  # noqa: S102 - our own page
            for _ in range(2):
                try:
                    await names["main"]()
                    ends["whole"] += 1
                except NAMED as error:
                    ends[type(error).__name__] += 1
            # one for each run
            assert len(service.ledger.effects("journeys.update")) <= 2
            assert len(service.ledger.effects("webhooks.create")) <= 1
    ends.update(capsys.readouterr().out.split("\n"))
    assert ends["whole"] >= 12, ends
    assert ends["applied sent"] >= 6, ends
    assert ends["applied replayed"] >= 6, ends


@pytest.mark.parametrize("end", ["reset", "500", "hang"])
async def test_policy_of_the_examples_sends_again(end):
    """It leaves room for a second send after proof of absence, with the usual timeouts."""
    async with Simulator(seed=1, clock=service_clock()) as service:
        service.script("journeys.update", end)
        journey = service.seed_journey(name="before").id
        async with Client(
            service.base_url,
            ApiKey(service.api_key),
            reconcile=shop.POLICY,
            timeout=Timeouts(),
            clock=LoopClock(),
        ) as client:
            outcome = await client.journeys.update(journey, name="May").outcome()
    assert (outcome.verdict, outcome.resends) == (Verdict.APPLIED, 1), outcome.explain()
    assert len(service.ledger.effects("journeys.update")) == 1


@pytest.mark.parametrize("end", ["reset", "500", "hang"])
async def test_shorter_policy_than_that_of_the_examples(end):
    """With 45 s, it cannot send a write again whose answer was lost, which is proven absent 15 s later."""
    loop = asyncio.get_running_loop()
    async with Simulator(seed=1, clock=service_clock()) as service:
        service.script("journeys.update", end)
        journey = service.seed_journey(name="before").id
        with pytest.warns(
            UserWarning, match="no time to send a write again after a lost answer"
        ):
            client = Client(
                service.base_url,
                ApiKey(service.api_key),
                reconcile=ReconcilePolicy(deadline=45.0),
                clock=LoopClock(),
            )
        async with client:
            writing = asyncio.ensure_future(
                client.journeys.update(journey, name="May").outcome()
            )
            await service.arrived("journeys.update")
            lost_at = loop.time() + (Timeouts().attempt if end == "hang" else 0.0)
            outcome = await writing
    if end == "500":  # its answer was not lost
        assert (outcome.verdict, outcome.resends) == (Verdict.APPLIED, 1), (
            outcome.explain()
        )
        return
    assert (outcome.verdict, outcome.resends) == (Verdict.NOT_APPLIED, 0), (
        outcome.explain()
    )
    assert 14.5 < loop.time() - lost_at < 17.0


async def test_wait_of_a_web_caller():
    """With the policy of the examples, nobody waits 90 s for a verdict, and each is true."""
    loop, waits = asyncio.get_running_loop(), []

    async def rename(journey):
        begun = loop.time()
        outcome = await client.journeys.update(journey, name="May").outcome()
        waits.append(loop.time() - begun)
        return outcome

    async with (
        Simulator(seed=26, faults=OF_READS_TOO, clock=service_clock()) as service,
        Client(
            service.base_url,
            ApiKey(service.api_key),
            reconcile=shop.POLICY,
            clock=LoopClock(),
        ) as client,
    ):
        journeys = [service.seed_journey(name="before").id for _ in range(WRITES)]
        outcomes = await asyncio.gather(*map(rename, journeys))
        await service.settled()
    assert false_verdicts(service, journeys, outcomes) == []
    assert max(waits) < 90.0
    assert sum(outcome.resends for outcome in outcomes) > 0


def false_verdicts(service, journeys, outcomes):
    """Return the stories of the writes, one to each of *journeys*, of which the ledger tells another end."""
    effects = Counter(
        entry.target for entry in service.ledger.effects("journeys.update")
    )
    ends = zip(journeys, outcomes, strict=True)
    return [
        outcome.explain()
        for each, outcome in ends
        if effects[each] not in DONE[outcome.verdict]
    ]


@pytest.mark.untraced
async def test_one_client_for_thousands_of_tasks():
    """They share its connections, its credential and the service's clock; each gets its own true verdict."""
    asked, tasks = [], 2000

    async def token():
        asked.append(1)
        return service.api_key

    async with (
        Simulator(seed=27, faults=OF_READS_TOO, clock=service_clock()) as service,
        Client(
            service.base_url, TokenProvider(token, kind="api_key"), clock=LoopClock()
        ) as client,
    ):
        journeys = [service.seed_journey(name="before").id for _ in range(tasks)]
        outcomes = await asyncio.gather(
            *(client.journeys.update(each, name="May").outcome() for each in journeys)
        )
        await service.settled()
    assert false_verdicts(service, journeys, outcomes) == []
    assert Counter(each.verdict for each in outcomes)[Verdict.APPLIED] > tasks * 0.8
    assert len(asked) == 1


async def test_client_in_another_event_loop():
    """It belongs to one: in another, a read and a write raise an error, and nothing is sent."""

    async def elsewhere():
        for call in (
            client.webhooks.list,
            lambda: client.journeys.update(journey, name="May"),
        ):
            with pytest.raises(ConfigurationError, match="event loop"):
                await call()

    async with (
        Simulator(seed=28, faults=OF_READS_TOO, clock=service_clock()) as service,
        client_of(service) as client,
    ):
        journey = service.seed_journey(name="before").id
        await client.journeys.update(journey, name="April").outcome()
        before = service.arrivals()
        await asyncio.to_thread(asyncio.run, elsewhere())
        assert service.arrivals() == before


async def test_requests_that_are_cancelled(tmp_path):
    """They end at once. A write in flight is in `unsettled` and in the journal; settling it finds its end."""
    chance, loop = random.Random(32), asyncio.get_running_loop()
    faults, cancelled = Faults(rate=0.25, reads=0.25, late_up_to=0.1), set()
    patient = Timeouts(attempt=3.0, connect=20.0, call=50.0)
    async with (
        Simulator(
            seed=32, faults=faults, latency=0.05, clock=service_clock()
        ) as service,
        client_of(service, journal=tmp_path / "calls.db", timeout=patient) as client,
    ):
        for _ in range(40):
            journey = service.seed_journey(name="before").id
            writing = asyncio.ensure_future(
                client.journeys.update(journey, name="May").outcome()
            )
            await asyncio.sleep(chance.uniform(0.0, 0.3))
            begun = loop.time()
            writing.cancel()
            await asyncio.wait([writing])
            assert loop.time() - begun < 2.0  # an attempt has 3 s, and a verdict more
            if writing.cancelled():
                cancelled.add(journey)
        intents = client.unsettled
        with closing(sqlite3.connect(tmp_path / "calls.db")) as journal:
            stored = {
                identity for (identity,) in journal.execute("SELECT key FROM entries")
            }
        assert {intent.identity for intent in intents} <= stored
        outcomes = await asyncio.gather(*map(client.settle, intents))
        await service.settled()
    journeys = [journey for intent in intents for journey in intent.path.values()]
    assert false_verdicts(service, journeys, outcomes) == []
    sent = {entry.path_id for entry in service.ledger.find("journeys.update")}
    assert sent & cancelled <= {*journeys}
    assert len(outcomes) > 10


class DyingStore:
    """A store as a process sees it that takes events, and then does nothing any more."""

    def __init__(self, store):
        self._store, self.took = store, []

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def take(self, **arguments):
        """Take events, and return them to nobody."""
        self.took += await self._store.take(**arguments)
        if self.took:
            await asyncio.Event().wait()
        return []


async def test_events_of_a_process_that_dies():
    """Another one handles them 15 s after they were taken, and each once, though deliveries come again."""
    loop, chance, times = asyncio.get_running_loop(), random.Random(33), []
    store = events.MemoryStore(steady=loop.time)
    settings = {
        "secrets": (),
        "shared_header": events.SharedHeader(*SHARED),
        "mode": "inbox",
    }
    dying = DyingStore(store)
    first, second = (
        events.Receiver(store=each, inbox=shop.HANDLING, **settings)
        for each in (dying, store)
    )

    async def handle(_event):
        times.append(loop.time())

    for receiver in (first, second):
        receiver.on("invoice.created", name="handle")(handle)
    for number in range(8):
        body = encoded(v2("invoice.created", number=number))
        for _ in range(1 + (chance.random() < 0.25)):
            assert (await first.receive(body, dict([SHARED]))).status == 200
    async with asyncio.timeout(300), first:
        while not dying.took:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
        begun = loop.time()
        async with second:
            while (await store.counts())["open"]:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.1)
    assert len(times) == len(dying.took) == 8
    assert all(14.9 <= each - begun <= 15.5 + shop.HANDLING.poll for each in times)
