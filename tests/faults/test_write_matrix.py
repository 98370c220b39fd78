"""Every write, every fault, before and after the effect: the verdict against the service's own ledger."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from invsvc_async import Absent, Applied, PersonToken, Verdict
from invsvc_async.client import options_of
from invsvc_async.reconcile.history import Attempt, End
from tests.faults.conftest import client_of, new_service

pytestmark = pytest.mark.every_python

WRITES = (
    "webhooks.create",
    "webhooks.create tagged",
    "webhooks.update",
    "webhooks.delete",
    "journeys.update",
)
FAULTS = (
    "500", "502", "503", "504", "408", "reset", "close", "hang", "truncate", "garbage", "html", "empty",
    "success false", "head then close",
)  # fmt: skip
PHASES = ("{}", "apply, then {}", "late 0.15, then {}")


@attrs.frozen
class Case:
    write: str
    step: str
    reused: bool

    @property
    def operation(self):
        return self.write.split()[0]


def begin(case, service, client):
    """Make the write of *case*; the thing it acts on is there already."""
    match case.write.split():
        case ["webhooks.create", *tagged]:
            return client.webhooks.create(
                url="https://me.example/in",
                events=["invoice.created"],
                tag=bool(tagged),
            )
        case ["webhooks.update"]:
            return client.webhooks.update(
                service.seed_webhook().id, description="a value of its own"
            )
        case ["webhooks.delete"]:
            return client.webhooks.delete(service.seed_webhook().id)
        case _:
            return client.journeys.update(
                service.seed_journey(status="draft").id, name="a value of its own"
            )


async def settle_one(case):
    """Run *case* and say what is wrong with its verdict, if anything."""
    async with new_service() as service, client_of(service) as client:
        if case.reused:
            await client.webhooks.list()
        service.script(case.operation, case.step)
        outcome = await begin(case, service, client).outcome()
        # past the window: a commit of ours after the verdict would show
        await asyncio.sleep(0.45)
        effects = [
            entry
            for entry in service.ledger.effects(case.operation)
            if entry.by == "client"
        ]
        return wrong_about(outcome, len(effects), service.arrivals(case.operation))


def wrong_about(outcome, effects, arrivals):
    if outcome.verdict is not Verdict.APPLIED:
        return f"{outcome.verdict} where a second send was free to succeed\n{outcome.explain()}"
    if effects != 1:
        return f"{effects} effects\n{outcome.explain()}"
    sent = [
        each
        for each in outcome.history
        if isinstance(each, Attempt) and each.end is not End.NOT_SENT
    ]
    if len(sent) != arrivals:
        return f"{arrivals} arrivals of {len(sent)} requests sent\n{outcome.explain()}"
    return None


@pytest.mark.parametrize("phase", PHASES, ids=("before", "after", "late"))
@pytest.mark.parametrize("write", WRITES)
async def test_write_under_every_fault(write, phase):
    """Each fault ends in APPLIED with exactly one effect, on fresh and on reused connections."""
    cases = [
        Case(write, phase.format(fault), reused)
        for fault in FAULTS
        for reused in (False, True)
    ]
    found = await asyncio.gather(*map(settle_one, cases))
    wrong = [
        f"{case}: {problem}"
        for case, problem in zip(cases, found, strict=True)
        if problem
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("status", ["400", "403", "404", "409"])
async def test_write_refused(service, client, write, status):
    """A definite no is REFUSED at once: one arrival, no effect, no read to settle."""
    case = Case(write, status, reused=False)
    service.script(case.operation, status)

    outcome = await begin(case, service, client).outcome()

    assert outcome.verdict is Verdict.REFUSED
    assert outcome.error.status == int(status)
    assert service.arrivals(case.operation) == 1
    assert not [
        entry
        for entry in service.ledger.effects(case.operation)
        if entry.by == "client"
    ]


@pytest.mark.parametrize("write", WRITES)
async def test_write_never_resent_when_policy_says_so(service, write):
    """With resend="never" a write that provably did not happen is NOT_APPLIED after one arrival."""
    case = Case(write, "reset", reused=False)
    async with client_of(service) as client:
        policy = attrs.evolve(options_of(client).reconcile, resend="never")
        service.script(case.operation, "reset")
        outcome = await begin(case, service, client).with_policy(policy).outcome()

    assert outcome.verdict is Verdict.NOT_APPLIED
    assert service.arrivals(case.operation) == 1


# --- The three writes that have no read in the specification

UNREAD = {
    "teams.create": lambda client, reader: client.teams.create(
        legal_name="a value of its own", reader=reader
    ),
    "sheets.save_mapping": lambda client, reader: client.sheets.save_mapping(
        {"total": "Total"}, reader=reader
    ),
    "users.update_preferences": lambda client, reader: client.users.update_preferences(
        "team_1", testmode=True, reader=reader
    ),
}


async def settle_unread(operation, step, *, with_reader):
    """Run one write without a read, and say what is wrong with its verdict, if anything."""
    async with new_service() as service:
        credential = (
            PersonToken(service.person_token) if operation.startswith("users") else None
        )

        async def by_the_ledger(_client, _intent):
            found = service.ledger.effects(operation)
            return Applied({"id": found[0].target}) if found else Absent()

        async with client_of(service, credential=credential) as client:
            service.script(operation, step)
            write = UNREAD[operation](client, by_the_ledger if with_reader else None)
            outcome = await write.outcome()
            await asyncio.sleep(0.45)
            effects, arrivals = (
                len(service.ledger.effects(operation)),
                service.arrivals(operation),
            )
            if with_reader:
                return wrong_about(outcome, effects, arrivals)
            kept = [intent.key for intent in client.unsettled] == [outcome.intent.key]
            right = (
                outcome.verdict is Verdict.UNKNOWN
                and arrivals == 1
                and effects <= 1
                and kept
            )
            return (
                None
                if right
                else f"{arrivals} arrivals, {effects} effects, kept {kept}\n{outcome.explain()}"
            )


@pytest.mark.parametrize("with_reader", [False, True], ids=("no reader", "own reader"))
@pytest.mark.parametrize("phase", PHASES, ids=("before", "after", "late"))
@pytest.mark.parametrize("operation", UNREAD)
async def test_write_without_a_read_under_every_fault(operation, phase, with_reader):
    """Without a reader it is UNKNOWN at once, sent once and kept; with the caller's own it is applied exactly once."""
    found = await asyncio.gather(
        *(
            settle_unread(operation, phase.format(fault), with_reader=with_reader)
            for fault in FAULTS
        )
    )
    wrong = [
        f"{fault}: {problem}"
        for fault, problem in zip(FAULTS, found, strict=True)
        if problem
    ]
    assert not wrong, "\n".join(wrong)
