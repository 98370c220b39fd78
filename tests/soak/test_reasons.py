"""Reasons that processes print, compared with a ledger in which the bodies bear the keys."""

from __future__ import annotations

import json

import attrs
import pytest

from invsvc_async import Verdict
from invsvc_async.conformance.reasons import Told
from invsvc_async.simulator import Entry, Simulator
from invsvc_async.testing import quick_client
from tests.soak.reasons import BeingSent, Things, plain_of, told_in

pytestmark = pytest.mark.untraced


def sent(key, thing, at, applied=None):
    return Entry(
        operation="journeys.update",
        path_id=thing,
        body={"name": key},
        received_at=at,
        applied_at=applied,
    )


def told(cause, basis="never sent", verdict=Verdict.NOT_APPLIED, at=20.0, **rest):
    return Told(verdict=verdict, basis=basis, cause=cause, at=at, **rest)


def key_of(entry):
    return entry.body["name"]


@pytest.mark.parametrize(
    ("ledger", "is_true"),
    [
        ([], False),
        ([sent("b", "jrn_1", 10.0)], True),
        ([sent("b", "jrn_1", 25.0)], False),
        ([sent("b", "jrn_2", 10.0)], False),
        ([sent("b", "jrn_1", 4.0)], False),  # before a was begun, so it is no newer one
    ],
)
def test_overtaken(ledger, is_true):
    """A write is overtaken by one to the same thing that arrived, and was not there before it."""
    things = Things(ledger, key_of, begun={"a": 5.0})
    assert (things.contradiction("a", "jrn_1", told("overtaken")) is None) is is_true


@pytest.mark.parametrize(
    ("stored", "is_true"),
    [
        (BeingSent("b", "jrn_1", 10.0), True),
        (BeingSent("b", "jrn_1", 25.0), False),
        (BeingSent("b", "jrn_2", 10.0), False),
        (BeingSent("b", "jrn_1", 4.0), False),
        (BeingSent("a", "jrn_1", 10.0), False),  # itself
    ],
)
def test_overtaken_by_what_may_have_arrived(stored, is_true):
    """A process may be stopped between the storing of a write and its request, which then arrives later."""
    things = Things(
        [sent("b", "jrn_1", 25.0)], key_of, begun={"a": 5.0}, being_sent=[stored]
    )
    assert (things.contradiction("a", "jrn_1", told("overtaken")) is None) is is_true


def test_never_left():
    """What arrived did leave."""
    things = Things([sent("a", "jrn_1", 1.0)], key_of)
    assert "1 requests of it had arrived" in things.contradiction(
        "a", "jrn_1", told("never left")
    )
    assert things.contradiction("b", "jrn_1", told("never left")) is None


def test_absence_within_the_window():
    """A read within the window shows nothing."""
    things = Things([sent("a", "jrn_1", 1.0)], key_of, window=2.0)
    assert things.contradiction("a", "jrn_1", told("absent", "absence", read_at=2.0))
    assert (
        things.contradiction("a", "jrn_1", told("absent", "absence", read_at=3.0))
        is None
    )


def test_absence_that_another_run_has_found():
    """It was true at some time since it was asked for; what was sent before that contradicts it."""
    things = Things([sent("a", "jrn_1", 5.0, applied=5.1)], key_of)
    heard = told("absent", "absence", has_times=False, at=9.0)
    assert things.contradiction("a", "jrn_1", attrs.evolve(heard, asked=4.0)) is None
    assert "1 effects of it" in things.contradiction(
        "a", "jrn_1", attrs.evolve(heard, asked=6.0)
    )
    assert "1 effects of it" in things.contradiction("a", "jrn_1", heard)


async def test_reason_that_is_printed():
    """What a process prints of an outcome is read as it was."""
    async with Simulator() as service, quick_client(service) as client:
        service.script("webhooks.create", "apply, then reset")
        write = client.webhooks.create(
            url="https://me.example/in",
            events=["invoice.created"],
            on_lost_secret="keep",
        )
        outcome = await write.outcome()

    plain = plain_of(outcome)
    read = told_in(json.loads(json.dumps(plain)))
    assert (read.verdict, read.basis, read.made) == (
        Verdict.APPLIED,
        "match",
        outcome.value.id,
    )
    assert read.duplicates == ()
    assert read.read_at < read.at
