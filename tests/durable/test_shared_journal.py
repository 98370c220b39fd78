"""The journal that processes share: who settles what a dead process left, and what a living one keeps."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from functools import partial

import attrs
import pytest

from invsvc_async import ConfigurationError, JournalError, Timeouts, Verdict
from invsvc_async.client import options_of
from invsvc_async.durable import last_writes
from invsvc_async.durable.journal import ClientJournal
from invsvc_async.durable.leases import Leases
from invsvc_async.durable.store import lanes
from invsvc_async.durable.store.postgres import PostgresStore
from invsvc_async.durable.store.states import Left
from tests.batch.conftest import HOOK, POLICY, client_of
from tests.durable.child import process
from tests.durable.writing import cut_off
from tests.support.children import until_stopped
from tests.support.database import failing_at_cancellation
from tests.support.database_proxy import database_proxy
from tests.support.gate import PATIENT, gate
from tests.support.inside import journal_of, store_beneath
from tests.support.waiting import cancel, until, until_no

EXACT = attrs.evolve(POLICY, clock_slack=0.0, clock_band=0.0)


async def recovered(client, **options):
    """Recover until something was found: a process dies by silence."""
    return await until(lambda: client.recover(**options))


async def rows_of(client):
    return await store_beneath(client).rows("SELECT * FROM {s}entries")


@pytest.mark.untraced
@pytest.mark.silence(1)
@pytest.mark.one_python
async def test_process_that_was_stopped_before_its_send_does_not_send(service, shared):
    """Stopped between the journal and the socket, and taken over meanwhile, it wakes up and sends nothing."""
    async with (
        client_of(service, journal=shared) as client,
        stopped_before_its_send(service, shared) as child,
    ):
        [theirs] = {row["lane"] for row in await rows_of(client)}
        recovering = asyncio.create_task(recovered(client))
        await until(partial(is_moved, client, theirs))
        child.send_signal(signal.SIGCONT)  # before the time of its attempt is over
        said, _ = await child.communicate()
        [outcome] = await recovering
        # another process may have put back the state before it
        assert outcome.verdict is Verdict.UNKNOWN
    assert child.returncode == 1
    assert b"Nothing was sent now" in said
    assert service.arrivals("webhooks.update") == 0


async def is_moved(client, lane):
    return lane not in {row["lane"] for row in await rows_of(client)}


@asynccontextmanager
async def stopped_before_its_send(service, shared):
    """Run a process that stops between the journal and the socket."""
    change = {"webhook": service.seed_webhook().id, "description": "theirs"}
    async with process(
        service, shared, "webhooks.update", "SIGSTOP before the socket", **change
    ) as child:
        await until_stopped(child)
        yield child


async def test_write_of_a_living_process_is_left_to_it(service, shared):
    """However long it takes, its verdict is its own, and the journal is empty in the end."""
    service.script("webhooks.update", "slow 1.5")
    async with (
        client_of(service, journal=shared) as first,
        client_of(service, journal=shared) as second,
    ):
        writing = asyncio.create_task(
            first.webhooks.update(service.seed_webhook().id, description="mine")
        )
        await service.arrived("webhooks.update")
        while not writing.done():
            assert await second.recover() == []
            await asyncio.sleep(0.2)  # sleeps: between two looks at a write that runs
        assert (await writing).description == "mine"
        await until_no(lambda: rows_of(second))


@pytest.mark.parametrize("same_mode", [False, True])
async def test_keyed_write_that_runs_here_is_no_leftover(
    service, shared, caplog, same_mode
):
    """A write with a key of the user's own that this process is sending is neither settled nor complained of."""
    service.script("webhooks.update", "slow 1.5")
    async with client_of(service, journal=shared) as client:
        hook = service.seed_webhook()
        write = client.webhooks.update(hook.id, description="mine").keyed("k")
        writing = asyncio.create_task(write.outcome())
        await service.arrived("webhooks.update")
        while not writing.done():
            assert await client.recover(same_mode=same_mode) == []
            await asyncio.sleep(0.2)  # sleeps: between two looks at a write that runs
        assert (await writing).verdict is Verdict.APPLIED
    assert "left in the journal" not in caplog.text


@pytest.mark.untraced
@pytest.mark.silence(1)
@pytest.mark.parametrize("failure", [OSError, asyncio.CancelledError])
async def test_recovering_gives_the_outcomes(service, shared, failure):
    """In the background, what a dead process left is settled and handed over; what fails to take it gets it again."""
    taken, both = [], asyncio.Event()
    service.script("webhooks.create", "slow 0.3")

    async def take(outcome):
        taken.append(outcome.verdict)
        if len(taken) == 1:
            raise failure("no")
        both.set()

    async with process(service, shared, "webhooks.create", **HOOK, tag=True):
        await service.arrived("webhooks.create")
    async with (
        client_of(service, journal=shared) as client,
        client.recovering(every=0.1, on_outcome=take),
        asyncio.timeout(300),
    ):
        await both.wait()
    assert taken == [Verdict.APPLIED] * 2


@pytest.mark.slow
@pytest.mark.parametrize("place", ["take_over", "beat"])
async def test_recovering_that_ends_as_its_database_fails(
    service, shared, monkeypatch, place
):
    """The client closes, also if the database's error takes the place of the cancellation."""
    begun, failing = failing_at_cancellation(in_task="live" if place == "beat" else "")
    monkeypatch.setattr(
        ClientJournal if place == "take_over" else Leases, place, failing
    )

    async def recover():
        async with (
            client_of(service, journal=shared) as client,
            client.recovering(every=3600),
        ):
            await begun.wait()

    done, _ = await asyncio.wait([asyncio.create_task(recover())], timeout=300)
    assert done


async def test_recovering_needs_a_journal(client):
    """Without one, the words say how to make one."""
    with pytest.raises(ConfigurationError, match="has no journal"):
        async with client.recovering():
            pass


@pytest.mark.parametrize("operation", ["webhooks.update", "journeys.update"])
async def test_thing_that_another_process_changed_after_a_dead_one(
    service, shared, operation
):
    """The state is the newer write's: the older one is neither called absent, nor superseded by a stranger."""
    hook, journey = (
        service.seed_webhook(status="active"),
        service.seed_journey(status="draft"),
    )
    write = {
        "webhooks.update": lambda client, value: client.webhooks.update(
            hook.id, status=value
        ),
        "journeys.update": lambda client, value: client.journeys.update(
            journey.id, name=value
        ),
    }[operation]
    service.script(operation, "apply, then hang")
    async with client_of(service, journal=shared, reconcile=EXACT) as first:
        await cut_off(service, write(first, "inactive"))
    async with (
        client_of(service, journal=shared) as second,
        client_of(service, journal=shared) as third,
    ):
        await write(second, "active")
        [outcome] = await recovered(third)

    assert len(service.ledger.effects(operation)) == 2
    assert outcome.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    "cut",
    [JournalError("away"), asyncio.CancelledError()],
    ids=["database", "cancelled"],
)
async def test_recovery_that_is_cut_off_between_its_transactions(
    service, shared, monkeypatch, cut
):
    """What was acquired, but not yet moved, is settled by the next recovery of this process."""
    hook = service.seed_webhook().id
    service.script("webhooks.update", "apply, then hang")
    async with client_of(service, journal=shared) as first:
        await cut_off(service, first.webhooks.update(hook, description="mine"))

    def moved(*_):
        yield "SELECT 1", ()
        raise cut

    async with client_of(service, journal=shared) as second:
        with monkeypatch.context() as patch:
            patch.setattr(lanes, "_move_entries", moved)
            with pytest.raises(type(cut)):
                await second.recover()
        [outcome] = await second.recover()

    assert outcome.verdict is Verdict.APPLIED


@pytest.mark.silence(1)
@pytest.mark.one_python
async def test_move_whose_reply_is_lost(service, shared, monkeypatch):
    """What was moved is settled, and its sender is not taken for gone: it may only have been stopped."""
    lost = []

    async def moved(store, script):
        found = await run(store, script)
        if (
            getattr(script, "func", None) is lanes._move_entries
            and script.args[0]
            and not lost
        ):
            lost.extend(found)
            raise JournalError("the connection was lost")
        return found

    run = PostgresStore.run
    monkeypatch.setattr(PostgresStore, "run", moved)
    async with (
        client_of(service, journal=shared) as client,
        stopped_before_its_send(service, shared),
    ):
        with pytest.raises(JournalError, match="lost"):
            await recovered(client)
        journal = journal_of(client)
        await journal.take_over(same_mode=False)
        [key] = lost

        assert not journal.sender_is_gone(key)
        assert [intent.identity async for intent in journal.open_intents()] == [key]


async def test_write_whose_second_awaiter_goes_on(service, shared):
    """The first one is cancelled while the intent is stored; that of the second is not removed in its place."""
    hook = service.seed_webhook().id
    async with client_of(service, journal=shared, timeout=PATIENT) as client:
        write = client.webhooks.update(hook, description="mine")
        with gate(service, "webhooks.update"):
            first, second = (asyncio.create_task(write.outcome()) for _ in range(2))
            await until(lambda: journal_of(client)._writes)
            await asyncio.sleep(0)
            first.cancel()
            await service.arrived("webhooks.update")
            await asyncio.sleep(0.1)  # sleeps: in which its entry would be removed
            stored = await rows_of(client)
        assert (await second).verdict is Verdict.APPLIED

    assert len(stored) == 1


async def test_write_that_is_resumed_while_its_verdict_is_removed(
    service, shared, monkeypatch
):
    """What it stores before its send is not removed with the verdict that the application has had."""
    hook, began, goes_on = service.seed_webhook().id, asyncio.Event(), asyncio.Event()

    async def slowly(store, text, *values):
        if text.startswith("DELETE FROM {s}entries"):
            began.set()
            await goes_on.wait()
        return await rows(store, text, *values)

    rows = PostgresStore.rows
    monkeypatch.setattr(PostgresStore, "rows", slowly)
    async with client_of(service, journal=shared, timeout=PATIENT) as client:
        service.script("webhooks.update", "reset")
        write = client.webhooks.update(hook, description="mine").with_policy(
            resend="never"
        )
        outcome = await write.outcome()
        await began.wait()
        policy = attrs.evolve(POLICY, deadline=300.0)
        intent = attrs.evolve(outcome.intent, policy=policy)
        with gate(service, "webhooks.update"):
            again = asyncio.create_task(client.resume(intent).outcome())
            arriving = asyncio.create_task(service.arrived("webhooks.update", 2))
            await asyncio.wait([arriving], timeout=0.6)  # it waits for the removal
            goes_on.set()
            await arriving
            await asyncio.sleep(0.1)  # sleeps: in which its entry would be removed
            stored = await rows_of(client)
        resumed = await again

    assert (outcome.verdict, resumed.verdict) == (Verdict.NOT_APPLIED, Verdict.APPLIED)
    assert len(stored) == 1


@pytest.mark.slow
@pytest.mark.parametrize("lease", ["valid", "expired"])
async def test_database_that_goes_away_before_a_send(service, shared, lease):
    """The write is not sent, and the error says so, without the password; also when it has long been away."""
    async with database_proxy() as proxy:
        name = shared.partition("journal=")[2]
        through = f"postgresql://postgres:hunter2@127.0.0.1:{proxy.port.number}/postgres?journal={name}"
        async with client_of(
            service, journal=through, timeout=Timeouts(attempt=2.0)
        ) as client:
            await client.webhooks.update(
                service.seed_webhook().id, description="before"
            )
            journal = journal_of(client)
            store_beneath(journal).patience = 0.5
            proxy.cut()
            if lease == "expired":
                journal.life.own.leases.until = 0.0
            with pytest.raises(
                JournalError, match=r"is away .*was not sent now"
            ) as caught:
                async with asyncio.timeout(300):
                    await client.webhooks.create(**HOOK)
    assert "hunter2" not in str(caught.value)
    assert service.arrivals("webhooks.create") == 0


async def test_intent_that_the_journal_has_from_another_process(service, shared):
    """It is not sent beside that entry: the error says who takes it over, and then it can be resumed."""
    hook = service.seed_webhook(description="before").id
    service.script("webhooks.update", "reset")
    service.script("webhooks.get", "pass", *["503"] * 200)
    short = attrs.evolve(POLICY, deadline=1.0)
    # otherwise it is sent again only within two seconds
    at_leisure = attrs.evolve(POLICY, clock_band=120.0)
    async with client_of(service, journal=shared, reconcile=short) as client:
        left = await client.webhooks.update(hook, description="new").outcome()
    assert left.verdict is Verdict.UNKNOWN
    async with client_of(service, journal=shared, reconcile=short) as client:
        for _ in range(2):  # the second one knows no more of it than the first
            service.scripts["webhooks.get"].clear()
            with pytest.raises(JournalError, match=r"client\.recover\(\) takes over"):
                await client.resume(attrs.evolve(left.intent, policy=at_leisure))
        assert service.arrivals("webhooks.update") == 1
        service.script("webhooks.get", *["503"] * 200)
        [again] = await recovered(client)
        assert again.verdict is Verdict.UNKNOWN
        service.scripts["webhooks.get"].clear()
        patient = attrs.evolve(again.intent, policy=POLICY)
        assert (await client.resume(patient).outcome()).verdict is not Verdict.UNKNOWN


async def test_unreadable_intent_is_left_and_named(service, shared, caplog):
    """An intent of another version of the code stays in the journal, and the others are settled."""
    service.script("webhooks.update", "apply, then hang", "apply, then hang")
    async with client_of(service, journal=shared) as client:
        for _ in range(2):
            await cut_off(
                service,
                client.webhooks.update(service.seed_webhook().id, description="mine"),
            )
        entries = store_beneath(client)
        await entries.idle()
        text = "UPDATE {s}entries SET intent = replace(intent, $1, $2) WHERE seq = (SELECT min(seq) FROM {s}entries)"
        await entries.rows(text, "{", '{"of_tomorrow":1,')
    async with client_of(service, journal=shared) as client:
        [outcome] = await client.recover()
        assert outcome.verdict is Verdict.APPLIED
        assert len(await rows_of(client)) == 2
    assert "left in the journal" in caplog.text


async def test_new_write_of_a_process_that_was_taken_for_dead(service, shared):
    """It is sent, because nobody else knows it. What another process has is not sent."""
    hook = service.seed_webhook().id
    service.script("webhooks.update", "apply, then hang")
    async with client_of(service, journal=shared) as client:
        await cut_off(service, client.webhooks.update(hook, description="before"))
        [before] = client.unsettled
        journal = journal_of(client)
        await store_beneath(journal).idle()
        await store_beneath(journal).rows("UPDATE {s}lanes SET owner = 'another.1'")
        outcome = await client.webhooks.update(
            service.seed_webhook().id, description="new"
        ).outcome()
        assert outcome.verdict is Verdict.APPLIED
        with pytest.raises(JournalError, match="another one finds out"):
            await journal.sending(before)
    assert service.arrivals("webhooks.update") == 2


async def test_closing_that_is_cancelled(service, shared, monkeypatch):
    """The process gives no more signs of life, which would keep others from what it has left open."""
    waiting = asyncio.Event()

    async def idle(_entries):
        waiting.set()
        await asyncio.Event().wait()

    client = client_of(service, journal=shared)
    await client.webhooks.update(service.seed_webhook().id, description="x")
    journal = journal_of(client)
    with monkeypatch.context() as patch:
        patch.setattr(PostgresStore, "idle", idle)
        closing = asyncio.create_task(journal.aclose())
        await waiting.wait()
        await cancel(closing)
    assert closing.cancelled()
    assert journal.life._beating.done()
    with pytest.raises(JournalError, match="is not open"):
        await store_beneath(journal).rows("SELECT 1")
    await client.aclose()


async def test_closing_that_is_cancelled_at_once(service, shared):
    """What the process has left open is another's, though its silence would last for an hour."""
    shared = shared.replace("silence=60", "silence=3600")
    hook = service.seed_webhook().id
    service.script("webhooks.update", "apply, then hang")
    client = client_of(service, journal=shared)
    await cut_off(service, client.webhooks.update(hook, description="x"))
    closing = asyncio.create_task(journal_of(client).aclose())
    await asyncio.sleep(0)
    await cancel(closing)
    assert closing.cancelled()
    async with client_of(service, journal=shared) as other:
        [outcome] = await other.recover()
    assert outcome.verdict is Verdict.APPLIED
    await client.aclose()


async def test_journal_of_no_client_and_of_a_closed_one(service, shared):
    """Neither can be opened, and so nothing is sent."""
    with pytest.raises(ConfigurationError, match="belongs to no client"):
        await ClientJournal(shared).open()
    async with client_of(service, journal=shared) as client:
        journal = journal_of(client)
    with pytest.raises(JournalError, match="client is closed"):
        await journal.open()


@pytest.mark.silence(1)
async def test_rate_is_divided(service, shared):
    """Of two clients of one journal, each begins new writes at half of the rate."""
    async with (
        client_of(service, journal=shared, rate=10.0) as one,
        client_of(service, journal=shared, rate=10.0) as two,
    ):
        for number, client in enumerate((one, two)):
            url = f"https://me.example/{number}"
            await client.webhooks.create(url=url, events=["invoice.created"])
        core = options_of(one).core
        # Either may be slow on a busy machine, and count as dead until its next sign of life.
        await until(lambda: asyncio.sleep(0, core.members() == 2))
        waits = [core.pace.wait_for_start(0.0) for _ in range(3)]
        assert waits[2] - waits[1] == pytest.approx(0.2)


@pytest.mark.parametrize("has_written", [False, True])
@pytest.mark.parametrize("since", ["at once", "after ten minutes", "after a prune"])
async def test_own_state_that_another_process_has_replaced(
    service, shared, monkeypatch, has_written, since
):
    """A process does not compare with what it has seen itself, if another one has written since."""
    if since == "after ten minutes":
        # reaches: ten minutes of the service's clock
        monkeypatch.setattr(last_writes, "_RECENT", -60.0)
    hook = service.seed_webhook().id

    def described(client, text):
        return client.webhooks.update(hook, description=text).keyed(text).outcome()

    async with (
        client_of(service, journal=shared) as one,
        client_of(service, journal=shared) as other,
    ):
        if has_written:
            await described(one, "a")
        await described(other, "b")
        if since == "after a prune":
            await store_beneath(other).rows(
                "UPDATE {s}states SET team = NULL, state = NULL, stamp = NULL"
            )
        service.script("webhooks.update", "reset")
        third = await described(one, "c")
    assert third.applied, third.explain()
    effects = service.ledger.effects("webhooks.update")
    assert effects[-1].body["description"] == "c"


@pytest.mark.parametrize("stamps", [(5, None), (None, 5), (None, None), (5, 6)])
async def test_state_whose_time_is_not_known(client, stamps):
    """It does not count, nor does what the client has seen: which of them is later is not known."""
    thing, writes = "/journeys/jrn_1", options_of(client).core.writes
    seen, stored = stamps
    writes.learn_state(None, thing, {"name": "seen"}, 1.0, 2.0, stamp=seen)
    state = '{"id":"jrn_1","name":"stored","last_updated":5}'
    last_writes.learn(options_of(client), [Left(thing, state=state, stamp=stored)])
    last = writes.last_state(None, thing)
    assert (last and last.state["name"]) == ("stored" if stamps == (5, 6) else None)
