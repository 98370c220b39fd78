"""What a person has found out about a write of a journal: stored as its verdict, and when that is refused."""

from __future__ import annotations

import asyncio
import getpass
import signal
import socket
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace

import attrs
import pytest

from invsvc_async import (
    ApiKey,
    Client,
    ConfigurationError,
    FieldError,
    InvalidRequestError,
    JournalError,
    Journey,
    Outcome,
    SecretLostError,
    Timeouts,
    Verdict,
    Webhook,
    WriteNotAppliedError,
)
from invsvc_async.durable.entries import JournalEntries
from invsvc_async.durable.resolve import resolution, resolve
from invsvc_async.durable.store import findings
from invsvc_async.durable.store.claims import Held
from invsvc_async.durable.store.conditions import ENDED, FREED
from invsvc_async.durable.store.restored import mark_restored
from tests.batch.conftest import HOOK, client_of
from tests.durable.child import process
from tests.durable.test_key_claims import claims_of, move, rows_of, under_way
from tests.durable.test_lost_replies import twice
from tests.durable.writing import create, cut_off, rename
from tests.support.children import until_stopped
from tests.support.inside import journal_of, store_beneath
from tests.support.waiting import cancel, until

pytestmark = [pytest.mark.one_python, pytest.mark.silence(1)]

SEEN = {"because": "seen in the dashboard"}
BY = {**SEEN, "by": "ann"}


def mapping(client, key="k"):
    """Save a mapping, which no read of the specification shows."""
    write = client.sheets.save_mapping({"a": "b"})
    return write if key is None else write.keyed(key)


async def unknown(service, client, key="k", script="apply, then reset"):
    """Make a write whose outcome nobody knows, and return that."""
    service.script("sheets.save_mapping", script)
    outcome = await mapping(client, key).outcome()
    assert outcome.verdict is Verdict.UNKNOWN
    return outcome


def effects(service, operation="sheets.save_mapping"):
    return len(service.ledger.effects(operation))


def found_by(outcome):
    """Return what an outcome says of the person who found it out."""
    person = outcome.evidence.person
    return outcome.evidence.basis, person.by, person.because


def day_of(outcome):
    """Return the day on which a person's finding was stored."""
    return datetime.fromtimestamp(outcome.evidence.person.at / 1000, UTC).strftime(
        "%Y-%m-%d"
    )


# --- what a finding does


async def test_applied_is_replayed(service, address):
    """Everywhere, from then on, without a request: with who, when and why."""
    async with client_of(service, journal=address) as client:
        await unknown(service, client)
        resolved = await client.resolve("k", applied=True, **BY)
        assert client.unsettled == ()
        sends = service.arrivals()
        again = await mapping(client).outcome()
        stored = await client.outcome_of("k")
    async with client_of(service, journal=address) as client:
        later = await mapping(client).outcome()
        with pytest.raises(
            JournalError, match="has the verdict applied, which is final"
        ):
            await client.resolve("k", applied=False, **BY)
    async with process(
        service, address, "sheets.save_mapping", fields={"a": "b"}, key="k"
    ) as child:
        told, _ = await child.communicate()

    assert (service.arrivals(), effects(service)) == (sends, 1)
    assert told.decode().split() == ["applied", "True", "None"]
    assert (resolved.verdict, resolved.replayed, resolved.value) == (
        Verdict.APPLIED,
        False,
        None,
    )
    for outcome in (again, stored, later):
        assert (outcome.verdict, outcome.replayed) == (Verdict.APPLIED, True)
        assert found_by(outcome) == ("person", "ann", "seen in the dashboard")
        assert outcome.evidence.person == resolved.evidence.person
        assert (
            "ann found that it was applied: seen in the dashboard" in outcome.explain()
        )
        assert f"  found by ann, stored at {day_of(outcome)}" in outcome.explain()
        back = Outcome.from_json(outcome.to_json())
        assert back.evidence.person == outcome.evidence.person


async def test_not_applied_is_done_anew(service, address):
    """The next run sends it, once."""
    async with client_of(service, journal=address) as client:
        await unknown(service, client, script="reset")
        resolved = await client.resolve("k", applied=False, **BY)
        with pytest.raises(JournalError, match="has the verdict not applied already"):
            await client.resolve("k", applied=False, **BY)
        with pytest.raises(
            WriteNotAppliedError, match="ann found that it was not applied: seen in"
        ) as error:
            resolved.unwrap()
        assert "A person found that nothing was changed" in str(error.value)
    async with client_of(service, journal=address) as client:
        assert found_by(await client.outcome_of("k")) == (
            "person",
            "ann",
            "seen in the dashboard",
        )
        outcome = await mapping(client).outcome()
    assert (resolved.verdict, resolved.applied, resolved.evidence.cause) == (
        Verdict.NOT_APPLIED,
        False,
        "person",
    )
    assert (outcome.verdict, outcome.evidence.basis, effects(service)) == (
        Verdict.APPLIED,
        "answered",
        1,
    )


async def test_who_it_was_by_default(service, tmp_path):
    """It is the login and the host of the process."""
    async with client_of(service, journal=tmp_path / "calls.db") as client:
        await unknown(service, client)
        resolved = await client.resolve("k", applied=True, **SEEN)
    assert resolved.evidence.person.by == f"{getpass.getuser()}@{socket.gethostname()}"


async def unknown_create(service, client, key="k"):
    """Make a webhook whose answer is lost, with reads that are refused."""
    await client.webhooks.list()  # otherwise it is read before the write
    service.script("webhooks.create", "apply, then reset")
    service.script("webhooks.list", "403")
    outcome = await create(client, key).outcome()
    assert outcome.verdict is Verdict.UNKNOWN
    return outcome


async def test_value_of_an_id_and_of_a_model(service, address):
    """An id is all that the value has, nothing is made up; a model is given back, later without its secret."""
    async with client_of(service, journal=address) as client:
        await unknown_create(service, client, "id")
        [first] = await client.webhooks.list()
        by_id = await client.resolve("id", applied=first.id, **BY)
        await unknown_create(service, client, "model")
        second = next(
            hook for hook in await client.webhooks.list() if hook.id != first.id
        )
        by_model = await client.resolve("model", applied=second, **BY)
        again = await create(client, "model").outcome()
        with pytest.raises(SecretLostError) as failure:
            await create(client, "id")
    assert by_id.value.id == failure.value.webhook.id == first.id
    with pytest.raises(FieldError):
        _ = by_id.value.url
    assert (by_id.secret, by_model.secret) == ("lost", "lost")
    assert by_model.value == second
    assert again.value == second
    assert effects(service, "webhooks.create") == 2


async def test_secret_that_the_person_has(service, tmp_path):
    """A model with its secret says that somebody has it: it is not stored, and not lost."""
    async with client_of(service, journal=tmp_path / "calls.db") as client:
        await unknown_create(service, client)
        [found] = await client.webhooks.list()
        whole = attrs.evolve(found, secret="whsec_1")
        resolved = await client.resolve("k", applied=whole, **BY)
        again = await create(client)
    assert (resolved.secret, resolved.value.secret, again.secret) == (
        "not stored",
        None,
        None,
    )
    assert b"whsec_1" not in (tmp_path / "calls.db").read_bytes()


async def test_value_of_an_update(service, address):
    """Its id is known; another one is refused, and so is a model of another kind."""
    journey = service.seed_journey(id="jrn_1").id
    async with client_of(service, journal=address) as client:
        await client.journeys.get("jrn_1")  # otherwise it is read before the write
        service.script("journeys.update", "apply, then reset")
        service.script("journeys.get", "403")
        outcome = await rename(client, "new", "k").outcome()
        assert outcome.verdict is Verdict.UNKNOWN
        for other in ("jrn_2", Journey(id="jrn_2")):
            with pytest.raises(
                InvalidRequestError,
                match="'jrn_2' is another thing than the write changes",
            ):
                await client.resolve("k", applied=other, **BY)
        for other in (Webhook(id="jrn_1"), {"id": "jrn_1"}):
            with pytest.raises(
                InvalidRequestError, match=r"journeys\.update gives Journey, not"
            ):
                await client.resolve("k", applied=other, **BY)
        assert (await client.outcome_of("k")).verdict is Verdict.UNKNOWN
        assert (await client.resolve("k", applied=True, **BY)).value.id == journey


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {"applied": None},
            "applied: must be True, False, an id, or what was made or changed, not NoneType",
        ),
        ({"applied": ""}, "applied: an id must have 1 to 200 printable characters"),
        (
            {"because": " "},
            "because: must say in 1 to 1000 printable characters how you know",
        ),
        ({"because": "a\nb"}, "because: must say"),
        ({"by": "x" * 201}, "by: must have 1 to 200 printable characters"),
        ({"key": 7}, "key: must be a key or an Intent, not a int"),
    ],
)
async def test_arguments_that_say_nothing(service, tmp_path, given, problem):
    """They are refused in words, and nothing is stored."""
    async with client_of(service, journal=tmp_path / "calls.db") as client:
        await unknown(service, client)
        with pytest.raises(InvalidRequestError, match=problem):
            await client.resolve(**{"key": "k", "applied": True, **BY, **given})
        assert (await client.outcome_of("k")).verdict is Verdict.UNKNOWN


async def test_client_without_a_journal(service):
    """There is nothing in which a finding could be stored."""
    async with client_of(service) as client:
        with pytest.raises(
            ConfigurationError, match="resolve: this client has no journal"
        ):
            await client.resolve("k", applied=True, **BY)


# --- what is refused


async def test_write_that_is_not_in_doubt(service, address):
    """One that was refused did not happen; of one that was never sent, and an unknown key, nothing is stored."""
    async with client_of(service, journal=address) as client:
        service.script("webhooks.create", "403")
        refused = await create(client).outcome()
        with pytest.raises(
            JournalError, match="has the verdict refused already: it did not happen"
        ):
            await client.resolve("k", applied=False, **BY)
        with pytest.raises(JournalError, match="'none' is not there"):
            await client.resolve("none", applied=True, **BY)
        assert (await client.outcome_of("k")).verdict is refused.verdict
        # a late effect, which the person saw
        made = await client.resolve("k", applied="wh_1", **BY)
        sends = service.arrivals()
        assert (await create(client).outcome()).value.id == made.value.id == "wh_1"
        assert service.arrivals() == sends


async def test_write_of_which_nothing_was_sent(service, address):
    """There is nothing to find out, whatever the person thinks."""
    async with client_of(service, journal=address) as client:
        service.script("webhooks.create", "403")
        await create(client).outcome()
        [(name,)] = await rows_of(client, "SELECT key FROM {s}entries")
        again = partial(JournalEntries._reopen, [name], ["refused"], {}, at_end=False)
        await store_beneath(client).run(again)  # as the command `retry` does
        for applied in (True, False):
            with pytest.raises(
                JournalError, match="was never sent, so there is nothing to find out"
            ):
                await client.resolve("k", applied=applied, **BY)
        assert (await create(client).outcome()).applied
    assert effects(service, "webhooks.create") == 1


async def test_write_of_an_older_copy(service, address):
    """It may have been sent since the copy was made, though the copy says that it was not."""
    async with client_of(service, journal=address) as client:
        service.script("webhooks.create", "403")
        await create(client).outcome()
        [(name,)] = await rows_of(client, "SELECT key FROM {s}entries")
        store = store_beneath(client)
        await store.run(
            partial(JournalEntries._reopen, [name], ["refused"], {}, at_end=False)
        )
        await store.run(mark_restored)
        await client.resolve("k", applied="wh_1", **BY)
        sends = service.arrivals()
        assert (await create(client).outcome()).value.id == "wh_1"
        assert service.arrivals() == sends


async def test_write_that_never_left(service, address):
    """It provably did not happen: what the person saw is something else."""
    settings = {"journal": address, "timeout": Timeouts(attempt=1.0, call=1.0)}
    async with Client(
        "http://127.0.0.1:9/v2", ApiKey(service.api_key), **settings
    ) as client:
        outcome = await create(client).outcome()
        assert outcome.evidence.basis == "never sent"
        with pytest.raises(
            JournalError, match="was never sent, so there is nothing to find out"
        ):
            await client.resolve("k", applied=True, **BY)


async def test_run_that_lives(service, address):
    """A finding beside it is refused, in its process and in another; its own verdict counts."""
    async with (
        client_of(service, journal=address) as client,
        under_way(service, client),
    ):
        with pytest.raises(JournalError, match="is being done by this process"):
            await client.resolve("k", applied=False, **BY)


async def test_run_that_lives_elsewhere(service, shared):
    """Its process shows signs of life: it is refused."""
    async with (
        client_of(service, journal=f"{shared}0") as one,
        client_of(service, journal=f"{shared}0") as other,
        under_way(service, one),
    ):
        with pytest.raises(JournalError, match="belongs to a living process"):
            await other.resolve("k", applied=False, **BY)


@pytest.mark.parametrize("lives", [True, False])
async def test_process_that_seems_silent_by_a_clock_that_was_set(
    service, shared, monkeypatch, lives
):
    """It is waited for, as long as it may be silent: a new sign of life shows that it lives."""
    waited: list[float] = []

    async with (
        client_of(service, journal=f"{shared}0") as one,
        client_of(service, journal=f"{shared}0") as other,
        under_way(service, one),
    ):
        leases = journal_of(one).life.own.leases
        beat = leases.beat

        async def wait(seconds: float) -> None:
            waited.append(seconds)
            if lives:
                await beat()

        # reaches: no other sign of life comes between
        monkeypatch.setattr(leases, "beat", lambda _=None: asyncio.sleep(0, 1))
        # reaches: the real wait takes ten seconds
        monkeypatch.setattr(findings, "asyncio", SimpleNamespace(sleep=wait))
        await rows_of(
            other,
            "UPDATE {s}members SET seen = seen - 60 WHERE name = $1",
            leases.name,
        )
        if lives:
            with pytest.raises(JournalError, match="belongs to a living process"):
                await other.resolve("k", applied=False, **BY)
        else:
            found = await other.resolve("k", applied=False, **BY)
            assert found_by(found) == ("person", "ann", "seen in the dashboard")
    assert waited == [10.0]


@asynccontextmanager
async def seems_silent(service, journal, monkeypatch, key="k"):
    """Let a write be under way in a process that others take for dead, because the clock was set; yield its client."""
    async with client_of(service, journal=journal) as client:
        leases = journal_of(client).life.own.leases
        if key is not None:
            stack = under_way(service, client, key)
        else:
            stack = under_way_without_key(service, client)
        async with stack:
            # reaches: no sign of life comes between
            monkeypatch.setattr(leases, "beat", lambda _=None: asyncio.sleep(0, 1))
            await rows_of(
                client,
                "UPDATE {s}members SET seen = seen - 600 WHERE name = $1",
                leases.name,
            )
            yield client


@asynccontextmanager
async def under_way_without_key(service, client):
    service.script("sheets.save_mapping", "hang 60")
    running = asyncio.create_task(mapping(client, None).outcome())
    await service.arrived("sheets.save_mapping", 1)
    try:
        yield
    finally:
        await cancel(running)


async def later(client, seconds=600):
    """Let the last take-over from a silent process be *seconds* longer ago."""
    await rows_of(
        client,
        "UPDATE {s}facts SET value = CAST(CAST(value AS float8) - $1 AS text) WHERE name = 'silent'",
        float(seconds),
    )


@pytest.mark.parametrize("is_released", [False, True])
async def test_write_that_was_taken_from_a_process_that_seems_silent(
    service, shared, monkeypatch, is_released
):
    """It may still be sent, within the lease of that process: until that is over, a finding may be too old."""
    journal = f"{shared}0"
    async with (
        seems_silent(service, journal, monkeypatch),
        client_of(service, journal=journal) as other,
        client_of(service, journal=journal) as third,
    ):
        if is_released:  # as batches and outboxes do, too
            leases = journal_of(third).life.own.leases
            taken = await leases.take(9)
            await leases.give_up(taken)
        else:
            await journal_of(third).take_over(same_mode=True)
        lanes = await rows_of(other, "SELECT lane FROM {s}entries")
        owned = "SELECT 1 FROM {s}lanes WHERE id = $1 AND owner IS NOT NULL"
        assert await rows_of(other, owned, lanes[0][0]) == []
        for _ in range(2):
            with pytest.raises(
                JournalError, match=r"Look again in (9|10) s"
            ) as refused:
                await other.resolve("k", applied=False, **BY)
            assert refused.value.is_conflict
        await later(other)
        found = await other.resolve("k", applied=False, **BY)
        assert found_by(found) == ("person", "ann", "seen in the dashboard")


async def test_write_of_its_own_that_was_taken_from_a_process_that_seems_silent(
    service, shared, monkeypatch
):
    """Nor is one without a key that is in the lane of the person's process since."""
    journal = f"{shared}0"
    async with (
        seems_silent(service, journal, monkeypatch, key=None),
        client_of(service, journal=journal) as other,
    ):
        await journal_of(other).take_over(same_mode=True)
        [intent] = [each async for each in journal_of(other).open_intents()]
        with pytest.raises(JournalError, match="Look again in"):
            await other.resolve(intent, applied=False, **BY)
        await later(other)
        await other.resolve(intent, applied=False, **BY)


async def test_write_that_was_taken_from_a_process_with_a_longer_silence(
    service, shared, monkeypatch
):
    """Its lease is as long as its own silence says, not that of the person's process."""
    async with (
        seems_silent(service, f"{shared}00", monkeypatch),
        client_of(service, journal=f"{shared}0") as other,
    ):
        await journal_of(other).take_over(same_mode=True)
        with pytest.raises(JournalError, match=r"Look again in (99|100) s"):
            await other.resolve("k", applied=False, **BY)


async def test_write_that_was_taken_before_the_clock_was_set_back(
    service, shared, monkeypatch
):
    """It is not refused until the clock is again where it was: from the first try on, silence counts."""
    journal = f"{shared}0"
    async with (
        seems_silent(service, journal, monkeypatch),
        client_of(service, journal=journal) as other,
    ):
        await journal_of(other).take_over(same_mode=True)
        await later(other, -6000)
        with pytest.raises(JournalError, match=r"Look again in (9|10) s"):
            await other.resolve("k", applied=False, **BY)
        await later(other, 11)
        await other.resolve("k", applied=False, **BY)


async def test_write_whose_process_is_done_with_it(service, shared, monkeypatch):
    """Beside one that was taken from a silent process, it is resolved at once: nobody sends it."""
    journal = f"{shared}0"
    async with (
        client_of(service, journal=journal) as one,
        client_of(service, journal=journal) as other,
        under_way(service, one) as found,
    ):
        await move(one, found, ENDED)
        async with seems_silent(service, journal, monkeypatch, "another"):
            await journal_of(other).take_over(same_mode=True)
            await other.resolve("k", applied=False, **BY)
            with pytest.raises(JournalError, match="Look again in"):
                await other.resolve("another", applied=False, **BY)


async def test_waiter_for_a_run_that_settles_an_unknown_one(service, shared):
    """While it is settled again, a finding is refused; waiters get the verdict of that run."""
    journal = f"{shared}0"
    async with (
        client_of(service, journal=journal) as one,
        client_of(service, journal=journal) as other,
    ):
        await unknown_create(service, one)
        service.script("webhooks.list", "hang 60")
        running = asyncio.create_task(create(one).outcome())
        lists = service.arrivals("webhooks.list") + 1
        await service.arrived("webhooks.list", lists)
        waiting = asyncio.create_task(create(other).outcome())
        await until(lambda: bool(claims_of(other).waits._waiting))
        third = client_of(service, journal=journal)
        async with third as client:
            for who in (one, other, client):
                with pytest.raises(
                    JournalError, match=r"by this process|living process"
                ):
                    await who.resolve("k", applied=False, **BY)
        await cancel(running)
        outcome = await waiting
    assert (outcome.verdict, outcome.evidence.basis) == (Verdict.APPLIED, "tag")
    assert effects(service, "webhooks.create") == 1


async def test_two_findings_at_once(service, address):
    """One is stored, and the other one is refused."""
    async with client_of(service, journal=address) as client:
        await unknown(service, client)
        findings = (client.resolve("k", applied=each, **BY) for each in (True, False))
        ends = await asyncio.gather(*findings, return_exceptions=True)
        stored = await client.outcome_of("k")
    assert sorted(type(each) is JournalError for each in ends) == [False, True]
    [won] = [each for each in ends if not isinstance(each, JournalError)]
    assert stored.verdict is won.verdict


async def test_two_findings_at_once_in_two_processes(service, shared):
    """Two people find the same at once: the second one is refused, also if both have seen the same entry."""
    journal = f"{shared}0"
    async with (
        client_of(service, journal=journal) as one,
        client_of(service, journal=journal) as other,
    ):
        for number in range(5):
            await unknown(service, one, f"k{number}")
            findings = (
                client.resolve(
                    f"k{number}", applied=True, because="It is there", by=person
                )
                for client, person in ((one, "ana"), (other, "ben"))
            )
            ends = await asyncio.gather(*findings, return_exceptions=True)
            stored = await one.outcome_of(f"k{number}")
            [won] = [each for each in ends if not isinstance(each, JournalError)]
            assert stored.evidence.person == won.evidence.person


@pytest.mark.slow
@pytest.mark.parametrize("applied", [True, False])
async def test_what_a_killed_process_has_left(service, address, applied):
    """Nobody has it any more, once that process is silent: it may be resolved, and other runs see that."""
    place = "SIGKILL before the verdict"
    async with process(
        service, address, "webhooks.create", place, **HOOK, key="k"
    ) as child:
        await child.wait()
    assert effects(service, "webhooks.create") == 1
    async with client_of(service, journal=address) as client:

        async def is_left():
            name = await journal_of(client).keys._name("k", None)
            return not isinstance(await claims_of(client).look(name), Held)

        await until(is_left)
        resolved = await client.resolve("k", applied=applied, **BY)
        sends = service.arrivals()
        outcome = await create(client).outcome()
    if applied:
        assert (outcome.replayed, service.arrivals()) == (True, sends)
        assert resolved.attempts == 1
    else:  # the word of the person, which was wrong
        assert (outcome.replayed, effects(service, "webhooks.create")) == (False, 2)


async def test_finding_whose_reply_is_lost(service, address):
    """It is stored once, and found when it is stored again."""
    async with client_of(service, journal=address) as client:
        await unknown(service, client)
        store = store_beneath(client)
        store.run = partial(twice, store)
        resolved = await client.resolve("k", applied=True, **BY)
        del store.run
        assert (await client.outcome_of("k")).evidence == resolved.evidence


# --- the other writes to the same thing


async def left_in_flight(service, client, name, key):
    """Send an update whose answer never comes, and cancel it."""
    service.script("journeys.update", "apply, then hang 60")
    await cut_off(service, rename(client, name, key))
    await until(lambda: not claims_of(client).ends._unfinished)


async def test_older_write_is_overtaken_by_a_resolved_one(service, address):
    """It was sent, and had its effect: an older one is not done again over it."""
    service.seed_journey(id="jrn_1")
    async with client_of(service, journal=address) as client:
        service.script("journeys.update", "403")
        assert (await rename(client, "old", "old").outcome()).verdict is Verdict.REFUSED
        await left_in_flight(service, client, "new", "new")
        await client.resolve("new", applied=True, **BY)
        sends = service.arrivals("journeys.update")
        old = await rename(client, "old", "old").outcome()
        assert (old.verdict, old.evidence.cause) == (Verdict.NOT_APPLIED, "overtaken")
        assert service.arrivals("journeys.update") == sends
        assert (await rename(client, "newest", "newest").outcome()).applied
    assert service.ledger.effects("journeys.update")[-1].body["name"] == "newest"


async def test_older_write_is_done_where_the_newer_one_did_nothing(service, address):
    """It did not happen, so it overtakes nothing."""
    service.seed_journey(id="jrn_1")
    async with client_of(service, journal=address) as client:
        service.script("journeys.update", "403")
        assert (await rename(client, "old", "old").outcome()).verdict is Verdict.REFUSED
        service.script("journeys.update", "hang 60")
        await cut_off(service, rename(client, "new", "new"))
        await until(lambda: not claims_of(client).ends._unfinished)
        await client.resolve("new", applied=False, **BY)
        assert (await rename(client, "old", "old").outcome()).applied
    assert [
        each.body["name"] for each in service.ledger.effects("journeys.update")
    ] == ["old"]


async def test_resolved_write_is_in_no_lane_of_its_process(service, address):
    """The next write to its thing must look at what is stored: this process did not apply it itself."""
    service.seed_journey(id="jrn_1")
    async with client_of(service, journal=address) as client:
        await client.journeys.get("jrn_1")  # otherwise it is read before the write
        service.script("journeys.update", "apply, then reset")
        service.script("journeys.get", "403")
        assert (await rename(client, "new", "new").outcome()).verdict is Verdict.UNKNOWN
        own = (await journal_of(client).life.own_lane()).number
        lanes = "SELECT lane FROM {s}entries"
        assert [lane for (lane,) in await rows_of(client, lanes)] == [own]
        await client.resolve("new", applied=True, **BY)
        assert [lane for (lane,) in await rows_of(client, lanes)] == [FREED]


# --- writes without a key


async def test_write_without_a_key(service, address):
    """It is resolved by its intent; then it is not open any more, here and after a restart."""
    async with client_of(service, journal=address) as client:
        outcome = await unknown(service, client, None)
        resolved = await client.resolve(outcome.intent, applied=True, **BY)
        assert client.unsettled == ()
        sends = service.arrivals()
        settled = await client.settle(outcome.intent, same_mode=True)
        resumed = await client.resume(outcome.intent, same_mode=True).outcome()
        assert found_by(settled) == found_by(resumed) == found_by(resolved)
    async with client_of(service, journal=address) as client:
        assert await client.recover() == []
    assert (service.arrivals(), effects(service)) == (sends, 1)


async def test_write_without_a_key_that_did_not_happen(service, address):
    """It may be made again; nothing is left of the first one."""
    async with client_of(service, journal=address) as client:
        outcome = await unknown(service, client, None, "reset")
        await client.resolve(outcome.intent, applied=False, **BY)
        assert client.unsettled == ()
        assert (await mapping(client, None).outcome()).applied
    async with client_of(service, journal=address) as client:
        assert await client.recover() == []
    assert effects(service) == 1


@pytest.mark.parametrize("ends", ["an error", "cancelled"])
async def test_finding_that_is_stored_although_its_call_fails(
    service, address, monkeypatch, ends
):
    """It is final: nothing that this process finds, or sends, replaces it."""
    service.script("sheets.save_mapping", "apply, then reset")
    error = (
        JournalError("away", is_away=True)
        if ends == "an error"
        else asyncio.CancelledError
    )

    async def failing(_store, *_what):
        raise error

    async with client_of(service, journal=address) as client:
        unknown = await client.sheets.save_mapping({"a": "b"}).outcome()
        assert unknown.verdict is Verdict.UNKNOWN
        # reaches: it is what comes after the commit
        monkeypatch.setattr(type(store_beneath(client)), "notify", failing)
        with pytest.raises((JournalError, asyncio.CancelledError)):
            await client.resolve(unknown.intent, applied=True, because="seen")
        monkeypatch.undo()
        with pytest.raises(JournalError, match="final"):
            await client.resolve(unknown.intent, applied=True, because="seen")
        await client.settle(unknown.intent)
        await client.resume(unknown.intent).outcome()
    async with client_of(service, journal=address) as client:
        [recovered] = await client.recover()
    assert (recovered.verdict, recovered.evidence.basis) == (Verdict.APPLIED, "person")


async def test_write_without_a_key_that_is_under_way(service, address):
    """It is refused."""
    async with client_of(service, journal=address) as client:
        service.script("sheets.save_mapping", "hang 60")
        write = mapping(client, None)
        running = asyncio.create_task(write.outcome())
        await service.arrived("sheets.save_mapping", 1)
        with pytest.raises(JournalError, match="is being done by this process"):
            await client.resolve(write.intent, applied=True, **BY)
        await cancel(running)


async def test_next_write_under_a_key_after_a_finding_in_another_process(
    service, shared
):
    """It does not take what its process has left of the thing before for the state before it."""
    service.seed_journey(id="jrn_1")
    async with (
        client_of(service, journal=shared) as one,
        client_of(service, journal=shared) as other,
    ):
        assert (await rename(one, "first", "first").outcome()).applied
        service.script("journeys.update", "apply, then hang")
        await cut_off(service, other.journeys.update("jrn_1", name="second"))
        await other.resolve(other.unsettled[0], applied=True, **BY)
        service.script("journeys.update", "reset")
        next_one = await rename(one, "second", "next").outcome()
    assert "it may have matched before" in next_one.message, next_one.explain()
    assert [
        each.body["name"] for each in service.ledger.effects("journeys.update")
    ] == ["first", "second"]


@pytest.mark.slow
async def test_write_without_a_key_of_a_killed_process(service, address):
    """Whoever recovers it gets the finding, as each verdict that no application has had."""
    place = "SIGKILL before the verdict"
    async with process(
        service, address, "sheets.save_mapping", place, fields={"a": "b"}
    ) as child:
        await child.wait()
    async with client_of(service, journal=address) as client:
        [(key,)] = (
            await rows_of(client, "SELECT key FROM {s}entries")
            if await opened(client)
            else []
        )
        intents = [each async for each in journal_of(client).open_intents()]
        if not intents:  # of a database: its process must be silent first

            async def is_taken():
                await journal_of(client).take_over(same_mode=True)
                return [each async for each in journal_of(client).open_intents()]

            intents = await until(is_taken)
        assert [intent.identity for intent in intents] == [key]

        async def is_resolved():  # its process may live, until a second silence is over
            try:
                return await client.resolve(intents[0], applied=True, **BY)
            except JournalError as error:
                if "Look again in" not in str(error):
                    raise

        resolved = await until(is_resolved)
        assert found_by(resolved) == ("person", "ann", "seen in the dashboard")
    async with client_of(service, journal=address) as client:
        assert await client.recover() == []
    assert effects(service) == 1


async def test_write_without_a_key_that_is_resolved_beside_its_application(
    service, tmp_path
):
    """The application gets the finding when it recovers, as each verdict that it has not had; then no more."""
    path = tmp_path / "calls.db"
    async with client_of(service, journal=path) as client:
        outcome = await unknown(service, client, None)
    entries = JournalEntries(str(path), None)
    await entries.open()
    try:
        name = await entries.named(outcome.intent.key)
        await resolve(
            entries.store, name, resolution(True, "seen in the dashboard", "ann")
        )
    finally:
        await entries.aclose()
    for expected in (1, 0):
        async with client_of(service, journal=path) as client:
            found = await client.recover()
            assert [found_by(each) for each in found] == [
                ("person", "ann", "seen in the dashboard")
            ] * expected
            await asyncio.sleep(0)
    assert effects(service) == 1


@pytest.mark.slow
@pytest.mark.parametrize("applied", [True, False])
async def test_write_without_a_key_of_a_process_that_was_silent(
    service, shared, applied
):
    """A process that stood still while a person resolved its write sends nothing when it goes on."""
    async with process(
        service,
        shared,
        "sheets.save_mapping",
        "SIGSTOP before the socket",
        fields={"a": "b"},
    ) as child:
        await until_stopped(child)
        entries = JournalEntries(shared, None)
        await entries.open()
        try:
            [(name,)] = await entries.store.rows("SELECT key FROM {s}entries")
            finding = resolution(applied, "seen in the dashboard", "ann")
            await until(partial(resolved_once_silent, entries.store, name, finding))
            child.send_signal(signal.SIGCONT)
            said, _ = await child.communicate()
            rows = await entries.store.rows("SELECT state, verdict FROM {s}entries")
        finally:
            await entries.aclose()
    assert (child.returncode, b"Nothing was sent now" in said) == (1, True)
    assert service.arrivals("sheets.save_mapping") == 0
    verdict = Verdict.APPLIED if applied else Verdict.NOT_APPLIED
    assert [tuple(row) for row in rows] == [(2, verdict)]
    async with client_of(service, journal=shared) as client:
        [found] = await until(client.recover)
        assert found_by(found) == ("person", "ann", "seen in the dashboard")


async def resolved_once_silent(store, name, finding):
    """Store *finding* unless the process of the write counts as living; return whether it is stored."""
    try:
        await resolve(store, name, finding)
    except JournalError as error:
        if not error.is_conflict:
            raise
        return False
    return True


async def opened(client):
    await journal_of(client).open()
    return True


async def test_resume_that_begins_while_a_finding_is_stored(service, tmp_path):
    """What it would send is refused: the person has the last word."""
    async with client_of(service, journal=tmp_path / "calls.db") as client:
        outcome = await unknown(service, client, None)
        journal = journal_of(client)
        await client.resolve(outcome.intent, applied=True, **BY)
        with pytest.raises(JournalError, match="resolved by a person meanwhile"):
            await journal.sending(outcome.intent)
        await journal.settled(attrs.evolve(outcome, message="later"))
        rows = await rows_of(client, "SELECT state, verdict FROM {s}entries")
    assert rows in ([], [(2, "applied")])


async def test_intent_of_another_write_under_the_key(service, address):
    """Its finding would be about another write."""
    async with client_of(service, journal=address) as client:
        first = await unknown(service, client, script="reset")
        await client.resolve(first.intent, applied=False, **BY)
        await unknown(service, client)
        with pytest.raises(
            JournalError, match="is another one than that of the intent"
        ):
            await client.resolve(first.intent, applied=True, **BY)
        assert (await client.outcome_of("k")).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("because", [None, 5, "", "  ", "two\nlines", 1001 * "a"])
def test_reason_that_is_none(because):
    """It must be a line of text."""
    with pytest.raises(InvalidRequestError, match="because: must say"):
        resolution(True, because, "ann")
