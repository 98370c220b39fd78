"""What a receiver keeps of handled events, for replays; and what shares a store with it."""

from __future__ import annotations

from typing import Any

import pytest

from invsvc_async import events
from tests.events.bodies import (
    SECRET,
    SHARED,
    encoded,
    headers_of,
    signature,
    signed_body,
    v1,
    v2,
)
from tests.events.receiving.test_receiver import FAST, Service, eventually

pytestmark = pytest.mark.one_python

KEEPING = events.InboxPolicy(
    initial=1e-6, maximum=1e-6, poll=0.01, attempts=3, keep_bodies=3600.0
)


async def replay_all(store: events.Store) -> int:
    return sum(
        [await store.revive(event) for event in await store.events(state="handled")]
    )


@pytest.mark.parametrize("mode", ["inline", "inbox"])
async def test_replay_to_a_new_handler(tmp_path, mode: Any) -> None:
    """Events that were handled while bodies were kept reach a handler that was added afterwards."""
    path = str(tmp_path / "events.db")
    first = Service(mode=mode, store=path, inbox=KEEPING)
    bodies = [v2("invoice.created"), signed_body("sat.invoice.synced")]
    async with first.receiver:
        await first.deliver(bodies[0], shared=True)
        await first.deliver(bodies[1], signed=True)
        await eventually(lambda: len(first.seen) == 2)

    second = Service(mode="inbox", store=path, inbox=KEEPING)
    async with second.receiver:
        assert await replay_all(second.receiver.store) == 2
        await eventually(lambda: len(second.seen) == 2)
        assert (await second.deliver(bodies[0], shared=True)).outcome == "duplicate"

    assert {event.raw for event in second.seen} == {encoded(body) for body in bodies}


@pytest.mark.parametrize("mode", ["inline", "inbox"])
async def test_body_that_nobody_asked_to_keep(mode: Any) -> None:
    """By default nothing of a handled event stays but its key."""
    service = Service(mode=mode, store=events.MemoryStore())
    async with service.receiver:
        await service.deliver(v2("invoice.created"), shared=True)
        await service.deliver(signed_body("sat.invoice.synced"), signed=True)
        await eventually(lambda: len(service.seen) == 2)

    assert {
        event.body for event in await service.receiver.store.events(state="handled")
    } == {None}
    assert await replay_all(service.receiver.store) == 0


async def test_times_that_the_worker_prunes_by() -> None:
    """Each state has its own."""
    given: list[dict[str, float | None]] = []

    class Pruned(events.MemoryStore):
        async def prune(self, **ages: Any) -> int:
            given.append(ages)
            return 0

    for policy in (
        FAST,
        events.InboxPolicy(keep=50.0, keep_bodies=5.0, keep_dead=500.0),
    ):
        service = Service(mode="inbox", store=Pruned(), inbox=policy)
        async with service.receiver:
            await eventually(lambda: given)
        assert given.pop() in (
            {"older_than": 30 * 86400.0},
            {"older_than": 50.0, "bodies": 5.0, "dead": 500.0},
        )
        given.clear()


async def test_two_receivers_with_their_own_secrets_on_one_store(tmp_path) -> None:
    """Each refuses what the other's secret signed, and an event that came to both is handled once."""
    one = Service(secrets=["one"], mode="inbox", store=str(tmp_path / "events.db"))
    two = Service(secrets=["two"], mode="inbox", store=str(tmp_path / "events.db"))
    body = encoded(signed_body("sat.invoice.synced"))

    async with one.receiver, two.receiver:
        answers = [
            (
                await service.receiver.receive(
                    body, headers_of(body) | signature(body, secret)
                )
            ).outcome
            for service in (one, two)
            for secret in ("one", "two", SECRET)
        ]
        await eventually(lambda: one.seen or two.seen)

    assert answers == [
        "stored",
        "refused",
        "refused",
        "refused",
        "duplicate",
        "refused",
    ]
    assert len(one.seen + two.seen) == 1


async def test_events_without_a_key_that_are_kept() -> None:
    """Each is an event of its own, also in a replay."""
    service = Service(mode="inbox", store=events.MemoryStore(), inbox=KEEPING)
    async with service.receiver:
        for _ in range(2):
            raw = encoded(v1("invoice.created"))
            await service.receiver.receive(raw, dict([SHARED]))
        await eventually(lambda: len(service.seen) == 2)

    assert await replay_all(service.receiver.store) == 2
