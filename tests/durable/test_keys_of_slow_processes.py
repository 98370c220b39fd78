"""Keys of a process that was only cut off, and ends of runs that are cancelled: what is said of them is true."""

from __future__ import annotations

import asyncio
import gc
from operator import attrgetter

import pytest

from invsvc_async import ApiKey, JournalError, Timeouts, Verdict
from invsvc_async.client import options_of
from invsvc_async.durable.entry import Entry, State, VerdictAt
from invsvc_async.durable.run_ends import RunEnds
from invsvc_async.durable.unknown_writes import UnknownWrites
from tests.batch.conftest import client_of
from tests.support.database import connected, database
from tests.support.database_proxy import database_proxy
from tests.support.inside import journal_of, store_beneath
from tests.support.waiting import cancel, until

pytestmark = pytest.mark.one_python

BRIEF = Timeouts(attempt=4.0)


def update(client, journey, key):
    return client.journeys.update(journey, name=key).keyed(key)


def written(service):
    """Return the names in the ledger, in the order in which they took effect."""
    effects = service.ledger.effects("journeys.update")
    return [each.body["name"] for each in sorted(effects, key=attrgetter("applied_at"))]


@pytest.mark.slow
async def test_write_that_was_passed_over(service, request):
    """Its process, which was only cut off, does not send it again over the later write."""
    journey = service.seed_journey()["id"]
    name = f"p{abs(hash(request.node.nodeid))}"
    # Others may not settle what a credential of another namespace has written.
    crm = {"timeout": BRIEF}
    billing = {"timeout": BRIEF, "credential": ApiKey(service.issue_key())}
    billing["journal"] = database().at(journal=name, silence=1, namespace="billing")
    async with database_proxy() as proxy:
        crm["journal"] = f"{proxy.address}&journal={name}&silence=1&namespace=crm"
        async with (
            asyncio.timeout(300),
            client_of(service, **crm) as one,
            client_of(service, **billing) as other,
        ):
            await other.outcome_of("none")
            service.script("journeys.update", "hang")
            earlier = asyncio.create_task(update(one, journey, "earlier").outcome())
            await service.arrived("journeys.update")
            proxy.silence()
            later = await update(other, journey, "later").outcome()
            proxy.break_off()
            proxy.speak()
            outcome = await earlier
    assert later.verdict is Verdict.APPLIED
    assert outcome.verdict is Verdict.UNKNOWN
    assert written(service) == ["later"]


@pytest.mark.slow
async def test_key_that_was_forgotten_after_its_send(service, request):
    """The error of a run that has sent says so, although another process has found the verdict."""
    journey = service.seed_journey()["id"]
    name = f"f{abs(hash(request.node.nodeid))}"
    async with database_proxy() as proxy:
        through = f"{proxy.address}&journal={name}&silence=1"
        async with (
            asyncio.timeout(300),
            client_of(service, journal=through, timeout=BRIEF) as one,
            client_of(
                service, journal=database().at(journal=name, silence=1), timeout=BRIEF
            ) as other,
        ):
            service.script("journeys.update", "apply, then hang")
            running = asyncio.create_task(update(one, journey, "k").outcome())
            await service.arrived("journeys.update")
            proxy.silence()
            assert (await update(other, journey, "k").outcome()).applied
            assert await other.forget("k")
            proxy.break_off()
            proxy.speak()
            with pytest.raises(
                JournalError, match=r"forgotten .* may have been applied"
            ):
                await running
    assert written(service) == ["k"]


async def test_run_cancelled_while_its_verdict_is_stored(service, request):
    """The verdict is stored all the same, with the value, which nothing else has."""
    address = database().at(journal=f"c{abs(hash(request.node.nodeid))}", silence=600)
    async with client_of(service, journal=address) as client, connected() as admin:
        store = store_beneath(client)
        await client.outcome_of("none")
        journey = service.seed_journey()["id"]
        service.script("journeys.update", "slow 0.5")
        first = asyncio.create_task(update(client, journey, "k0").outcome())
        await service.arrived("journeys.update")
        transaction = admin.transaction()
        await transaction.start()
        await admin.execute(
            f"SELECT 1 FROM {store.schema}.entries WHERE key LIKE '% k0' FOR UPDATE"
        )
        # reaches: the group that is being stored, which waits for that row, and the next group
        await until(lambda: store._pending_now)
        saving = client.sheets.save_mapping({"a": "b"}).keyed("k1")
        second = asyncio.create_task(saving.outcome())
        await until(lambda: store._pending)  # reaches: as above
        await cancel(second)
        await transaction.commit()
        assert (await first).applied
        again = await client.sheets.save_mapping({"a": "b"}).keyed("k1").outcome()
    assert (again.verdict, again.replayed) == (Verdict.APPLIED, True)
    assert again.value is not None
    assert len(service.ledger.effects("sheets.save_mapping")) == 1


async def unreadable(_entry):
    """Return no intent."""
    raise JournalError("of another version")


class File:
    """A store in a file."""

    is_shared = False


class Clock:
    """A clock on which time passes as somebody waits; the first wait is cut off after *cut_off* s, if given."""

    def __init__(self, cut_off=None):
        self.time, self.waits, self._cut_off = 1000.0, [], cut_off

    def now(self):
        return self.time

    async def sleep(self, seconds):
        self.waits.append(seconds)
        if self._cut_off is None:
            self.time += seconds
            return
        self.time += self._cut_off
        self._cut_off = None
        raise asyncio.CancelledError


def in_doubt(**columns):
    return Entry(
        key="k",
        thing="webhook wh_1",
        operation="webhooks.update",
        common=1,
        **columns,
    )


async def test_wait_for_what_cannot_be_read_that_was_cancelled(client, monkeypatch):
    """The next run waits for the rest of it."""
    clock = Clock(cut_off=3.0)
    # reaches: time passes when the test says so
    monkeypatch.setattr(options_of(client).core, "clock", clock)
    entry = in_doubt(state=State.DONE, done_at=500_000, verdict="unknown", intent="{}")
    unknown = UnknownWrites(File(), unreadable)
    with pytest.raises(asyncio.CancelledError):
        await unknown.close_lines([entry], options_of(client))
    await unknown.close_lines([entry], options_of(client))
    whole, rest = clock.waits
    assert rest == whole - 3.0 > 0


async def test_write_in_doubt_that_is_sent_again(client, monkeypatch):
    """What was sent since is waited for, too; what was not is not waited for once more."""
    clock = Clock()
    # reaches: time passes when the test says so
    monkeypatch.setattr(options_of(client).core, "clock", clock)
    unknown = UnknownWrites(File(), unreadable)
    for intent in ("once", "once", "again"):
        entry = in_doubt(seq=7, state=State.SENDING, intent=intent)
        assert unknown.fresh([VerdictAt(7, None)], clock.now()) == [7]
        await unknown.close_lines([entry], options_of(client))
    assert len(clock.waits) == 2


async def test_error_that_a_cancelled_run_does_not_get(service, request):
    """It is not logged as one that was never retrieved."""
    address = database().at(journal=f"e{abs(hash(request.node.nodeid))}", silence=600)
    told = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: told.append(context["message"])
    )
    async with client_of(service, journal=address) as client:
        await client.outcome_of("none")
        claims = journal_of(client).keys.claims
        ends = RunEnds(claims.store, claims.waits)
        may_fail = asyncio.Event()

        async def failing():
            await may_fail.wait()
            raise JournalError("away")

        running = asyncio.create_task(ends.to_its_end("k", failing()))
        await asyncio.sleep(0)  # sleeps: it begins
        await cancel(running)
        may_fail.set()
        await ends.close()
        del running, ends
        gc.collect()
        await asyncio.sleep(0)  # sleeps: what is told is told
    assert told == []
