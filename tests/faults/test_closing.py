"""
Closing a client ends each of its writes at once, whatever it waits for.

When ``aclose()`` returns, each has its verdict, was refused before a byte of it left, or stands in
``unsettled``, as the service's ledger shows.
"""

import asyncio

import aiohttp
import pytest

from invsvc_async import (
    ConfigurationError,
    ReconcilePolicy,
    Timeouts,
    TokenProvider,
    Verdict,
)
from invsvc_async.client import options_of
from invsvc_async.durable.journal import ClientJournal
from tests.faults.conftest import client_of
from tests.support.inside import journal_of

pytestmark = pytest.mark.every_python

MANY = 12
PATIENCE = 60.0  # s of the loop: a close that waits for anything takes longer
LONG = Timeouts(attempt=900.0, connect=900.0, call=1800.0)
POLICY = ReconcilePolicy(
    settle_after_error=600.0, settle_after_loss=600.0, deadline=3000.0
)


class StuckJournal(ClientJournal):
    """A journal whose disk stands still from *stuck* on."""

    stuck = False

    async def sending(self, intent):
        """Store *intent*, once the disk moves."""
        if self.stuck:
            await asyncio.get_running_loop().create_future()
        await super().sending(intent)


class Scene:
    """A client with *MANY* writes, to as many journeys, that are brought into one phase."""

    def __init__(self, service, client, decided, journal):
        self.service, self.client, self.decided, self.journal = (
            service,
            client,
            decided,
            journal,
        )
        self.journeys = [service.seed_journey(status="draft").id for _ in range(MANY)]
        self.tasks = []

    def update(self, journey, **more):
        """Start an update of *journey*."""
        write = self.client.journeys.update(journey, name="new", **more)
        self.tasks.append(asyncio.create_task(write.outcome()))

    async def update_all(self):
        """Start an update of each journey, whose state is known."""
        for journey in self.journeys:
            await self.client.journeys.get(journey)
        for journey in self.journeys:
            self.update(journey)

    async def reach(self, decision):
        """Wait until each write has come to *decision*."""
        while self.decided.count(decision) < MANY:  # noqa: ASYNC110 - a plain function tells of decisions
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)


async def sending(scene):
    """Wait for the answer to what was sent."""
    scene.service.script("journeys.update", *["hang", "apply, then hang"] * (MANY // 2))
    await scene.update_all()
    await scene.service.arrived("journeys.update", MANY)


async def waiting(scene):
    """Wait in the settle window."""
    scene.service.script("journeys.update", *["reset"] * MANY)
    await scene.update_all()
    await scene.reach("wait")


async def reading(scene):
    """Read what became of what was sent."""
    scene.service.script("journeys.update", *["reset"] * MANY)
    await scene.update_all()
    scene.service.script("journeys.get", *["hang"] * MANY)
    await scene.reach("read")


async def reading_before(scene):
    """Read the state before the first send."""
    # as the service's clock is not known
    scene.service.script("journeys.get", *["hang"] * MANY)
    for journey in scene.journeys:
        scene.update(journey)
    await scene.service.arrived("journeys.get", MANY)


async def own_reader(scene):
    """Wait for a user-supplied reader."""

    async def read(client, intent):
        await asyncio.get_running_loop().create_future()

    await scene.client.users.get("usr_1")
    scene.service.script("webhooks.create", *["reset"] * MANY)
    for number in range(MANY):
        body = {"url": f"https://me.example/{number}"}  # each with a line of its own
        write = scene.client.write("POST", "webhooks", json=body, reader=read)
        scene.tasks.append(asyncio.create_task(write.outcome()))
    await scene.reach("read")


async def in_queue(scene):
    """Wait in a resource's queue: one is sent, the others wait for it."""
    scene.service.script("journeys.update", "hang")
    await scene.client.journeys.get(scene.journeys[0])
    for _ in range(MANY):
        scene.update(scene.journeys[0])
    await scene.service.arrived("journeys.update")


async def for_place(scene):
    """Wait for a free connection: one is sent, the others wait for it."""
    scene.service.script("journeys.update", *["hang"] * MANY)
    options_of(scene.client).core.transport._limiter.resize(1)
    await scene.update_all()
    await scene.service.arrived("journeys.update")


async def in_journal(scene):
    """Wait for the disk."""
    if scene.journal is None:
        pytest.skip("there is no journal to wait for")
    for journey in scene.journeys:
        await scene.client.journeys.get(journey)
    scene.journal.stuck = True
    await scene.update_all()
    await scene.reach("send")


async def all_at_once(scene):
    """Be in each of these phases."""
    for phase in (waiting, sending, in_queue):
        await phase(scene)


async def judged(scene, tasks):
    """Hold what the awaiters got against the ledger; return the identities of those in doubt."""
    open_, said = {each.identity for each in scene.client.unsettled}, set()
    for task in tasks:
        ended = (await asyncio.gather(task, return_exceptions=True))[0]
        if isinstance(ended, ConfigurationError):  # refused before a byte of it left
            continue
        if ended.verdict is Verdict.UNKNOWN:
            said.add(ended.intent.identity)
        else:
            assert ended.verdict is Verdict.NOT_APPLIED
            assert (
                ended.intent.sent == ()
                or ended.intent.sent[-1].end.kind == "not applied"
            )
    assert said == open_
    return open_


PHASES = [
    sending,
    waiting,
    reading,
    reading_before,
    own_reader,
    in_queue,
    for_place,
    in_journal,
    all_at_once,
]


@pytest.mark.parametrize("phase", PHASES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("journaled", [False, True], ids=["bare", "journal"])
@pytest.mark.parametrize("own_session", [True, False], ids=["own", "supplied"])
async def test_closing(phase, journaled, own_session, service, tmp_path, monkeypatch):
    """No write is under way when aclose() returns, and those that may have an effect are in unsettled."""
    monkeypatch.setattr("invsvc_async.writes.state_reads.READ_TIME", 900.0)
    path, decided = tmp_path / "journal.db", []
    journal = StuckJournal(path) if journaled else None
    async with aiohttp.ClientSession() as session:
        client = client_of(
            service,
            timeout=LONG,
            reconcile=POLICY,
            journal=journal,
            session=None if own_session else session,
            on_decision=lambda report: decided.append(report.decision),
        )
        scene = Scene(service, client, decided, journal)
        async with asyncio.timeout(PATIENCE):
            await phase(scene)
        begun = asyncio.get_running_loop().time()

        await client.aclose()

        assert all(task.done() for task in scene.tasks)
        assert asyncio.get_running_loop().time() - begun < PATIENCE
        in_doubt = await judged(scene, scene.tasks)
        arrived = len(service.ledger.entries)
        assert len(in_doubt) == arrived
        assert session.closed is False
    if journaled:
        async with client_of(service, journal=path) as later:
            left = {
                intent.identity async for intent in journal_of(later).open_intents()
            }
        assert left == in_doubt


@pytest.mark.parametrize("first", [True, False], ids=["first", "renewed"])
async def test_closing_while_a_token_is_fetched(first, service):
    """Those that wait for the first one are refused, and those that were refused with one stay so."""
    fetches = []

    async def source():
        fetches.append(1)
        if first or len(fetches) > 1:
            await asyncio.get_running_loop().create_future()
        return service.api_key

    credential = TokenProvider(source, kind="api_key")
    client = client_of(service, credential=credential, timeout=LONG, reconcile=POLICY)
    scene = Scene(service, client, [], None)
    if not first:
        service.script("journeys.update", *["401 raw"] * MANY)
        for journey in scene.journeys:
            await client.journeys.get(journey)
    for journey in scene.journeys:
        scene.update(journey)
    await asyncio.sleep(0.5)
    assert credential.is_fetching
    begun = asyncio.get_running_loop().time()

    await client.aclose()

    assert all(task.done() for task in scene.tasks)
    assert asyncio.get_running_loop().time() - begun < PATIENCE
    assert client.unsettled == ()
    ended = await asyncio.gather(*scene.tasks, return_exceptions=True)
    if first:
        assert {type(each) for each in ended} == {ConfigurationError}
        assert service.ledger.entries == []
    else:
        assert {each.verdict for each in ended} <= {
            Verdict.REFUSED,
            Verdict.NOT_APPLIED,
        }
        assert not any(entry.applied for entry in service.ledger.entries)
    credential._fetching.cancel()


async def test_closing_while_a_verdict_is_stored(service, tmp_path):
    """aclose() waits for the disk: the verdict is in the journal before its file is closed."""
    storing, go_on = asyncio.Event(), asyncio.Event()

    class SlowJournal(ClientJournal):
        async def settled(self, outcome):
            storing.set()
            await go_on.wait()
            await super().settled(outcome)

    client = client_of(
        service, timeout=LONG, journal=SlowJournal(tmp_path / "journal.db")
    )
    journey = service.seed_journey(status="draft")
    task = asyncio.create_task(client.journeys.update(journey.id, name="new").outcome())
    await storing.wait()
    closing = asyncio.create_task(client.aclose())
    await asyncio.sleep(0.5)
    assert not closing.done()
    go_on.set()
    await closing

    assert task.done()
    assert (await task).applied
    async with client_of(service, journal=tmp_path / "journal.db") as later:
        # the awaiter had the verdict, which is stored no longer
        assert await later.recover() == []


@pytest.mark.parametrize("manner", ["awaited", "in a task"])
async def test_closing_within_a_write(manner, service):
    """A reader may close its client: the write ends as unknown, and nothing waits for itself."""

    async def read(_client, _intent):
        await (
            client.aclose()
            if manner == "awaited"
            else asyncio.create_task(client.aclose())
        )

    client = client_of(service, timeout=LONG, reconcile=POLICY)
    await client.users.get("usr_1")
    service.script("webhooks.create", "reset")
    outcome = await client.write(
        "POST", "webhooks", json={"a": 1}, reader=read
    ).outcome()

    assert outcome.verdict is Verdict.UNKNOWN
    assert client.unsettled == (outcome.intent,)
    await client.aclose()


@pytest.mark.parametrize("key", [None, "of the write"], ids=["without", "key"])
async def test_closing_before_what_is_unknown_is_settled(key, service, tmp_path):
    """Its settling begins as its run ends: it stores that the write is still UNKNOWN, and the close waits for that."""
    path = tmp_path / "journal.db"
    client = client_of(service, timeout=LONG, reconcile=POLICY, journal=path)
    journey = service.seed_journey(status="draft").id
    write = client.journeys.update(journey, name="new")
    if key is not None:
        write = write.keyed(key)
    service.script("journeys.update", "apply, then hang")

    async def written_and_settled():
        outcome = await write.outcome()
        return outcome, await client.settle(outcome.intent)

    task = asyncio.create_task(written_and_settled())
    await service.arrived("journeys.update")

    await client.aclose()

    assert task.done()
    assert [each.verdict for each in await task] == [Verdict.UNKNOWN] * 2
    assert len(service.ledger.entries) == 1


async def test_closing_twice_and_cancelled(service, tmp_path):
    """Each call waits for the writes; one that is cancelled still closes the journal's file."""
    go_on = asyncio.Event()

    class SlowJournal(ClientJournal):
        async def settled(self, outcome):
            await go_on.wait()
            await super().settled(outcome)

    client = client_of(
        service, timeout=LONG, journal=SlowJournal(tmp_path / "journal.db")
    )
    journey = service.seed_journey(status="draft")
    task = asyncio.create_task(client.journeys.update(journey.id, name="new").outcome())
    await service.arrived("journeys.update")
    first, second = (
        asyncio.create_task(client.aclose()),
        asyncio.create_task(client.aclose()),
    )
    await asyncio.sleep(0.5)
    assert not first.done()
    assert not second.done()
    first.cancel()
    await asyncio.wait([first])
    async with client_of(service, journal=tmp_path / "journal.db"):  # the file is free
        go_on.set()
        await second
    assert task.done()
    assert (await asyncio.gather(task, return_exceptions=True))[0] is not None
