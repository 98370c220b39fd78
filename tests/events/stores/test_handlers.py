"""Events for several handlers, and in the order of a key: what all three stores must do."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from invsvc_async import events
from invsvc_async.errors import JournalError
from invsvc_async.events import Delivery, Standing
from invsvc_async.storage import sqlite_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.events.stores import Entry

pytestmark = pytest.mark.one_python


def delivery(
    key: str | None = "e_1", *, handler: str = "first", ordering_key: str | None = None
) -> Delivery:
    return Delivery(
        key=key,
        type="invoice.created",
        body=b"{}",
        handler=handler,
        ordering_key=ordering_key,
    )


def seen(entries: Sequence[Entry]) -> list[tuple[str | None, str]]:
    return [(entry.key, entry.handler) for entry in entries]


@pytest.mark.parametrize("key", ["e_1", None])
async def test_put_for_several_handlers(kept, key: str | None) -> None:
    """Each handler has a copy with a lease, attempts and an end of its own."""
    assert await kept.store.put(delivery(key), [delivery(None, handler="second")])
    if key is not None:
        assert not await kept.store.put(
            delivery(key), [delivery(None, handler="third")]
        )

    first, second = await kept.store.take(limit=9, lease=10)
    assert [first.handler, second.handler] == ["first", "second"]
    assert [(entry.key, entry.body) for entry in (first, second)] == [(key, b"{}")] * 2
    assert await kept.store.release(second, delay=0)
    assert await kept.store.handled(first)
    (again,) = await kept.store.take(limit=9, lease=10)
    assert (again.handler, again.attempts) == ("second", 2)
    assert await kept.store.bury(again, reason="why")

    (letter,) = await kept.store.events(state="dead")
    assert (letter.handler, letter.reason) == ("second", "why")
    assert await kept.store.counts() == {"open": 0, "handled": 1, "dead": 1}


async def test_take_for_some_handlers(kept) -> None:
    """A worker gets only what is for its handlers, or for all; the rest waits for others."""
    await kept.store.put(delivery("a", handler="old"))
    await kept.store.put(delivery("b", handler="new"))
    await kept.store.put(delivery("c", handler=""))

    assert seen(await kept.store.take(limit=9, lease=10, handlers=["", "old"])) == [
        ("a", "old"),
        ("c", ""),
    ]
    assert await kept.store.take(limit=9, lease=10, handlers=[]) == []
    assert seen(await kept.store.take(limit=9, lease=10)) == [("b", "new")]


async def test_claims_of_several_handlers(kept) -> None:
    """Each handler claims the event for itself, whichever is first, and a finished one stays so."""
    claims = [
        await kept.store.claim(delivery(handler=name), lease=10)
        for name in ("first", "second")
    ]
    assert [claim.key for claim in claims] == ["e_1", "e_1"]

    assert (
        await kept.store.claim(delivery(handler="second"), lease=10) is Standing.STORED
    )
    assert await kept.store.handled(claims[0])
    assert await kept.store.release(claims[1], delay=0)

    assert (
        await kept.store.claim(delivery(handler="first"), lease=10) is Standing.HANDLED
    )
    again = await kept.store.claim(delivery(handler="second"), lease=10)
    assert (again.handler, again.attempts) == ("second", 2)
    assert (
        await kept.store.claim(delivery(handler="third"), lease=10)
    ).handler == "third"


async def test_claim_beside_an_abandoned_one(kept) -> None:
    """A handler does not take over what another one claimed, also when that lease has run out."""
    await kept.store.claim(delivery(handler="first"), lease=10)
    await kept.pass_time(11)

    second = await kept.store.claim(delivery(handler="second"), lease=10)
    first = await kept.store.claim(delivery(handler="first"), lease=10)

    assert (second.handler, second.attempts) == ("second", 1)
    assert (first.key, first.handler, first.attempts) == ("e_1", "first", 2)


async def test_claim_after_that_of_another_handler_was_deleted(kept) -> None:
    """A handler that has had the event does not get it again by the key that became free."""
    claims = [
        Delivery(key="e_1", type="t", body=None, handler=name)
        for name in ("first", "second")
    ]
    first, second = [await kept.store.claim(claim, lease=10) for claim in claims]
    assert await kept.store.handled(second)
    assert await kept.store.release(first, delay=0)

    assert await kept.store.claim(claims[1], lease=10) is Standing.HANDLED
    again = await kept.store.claim(claims[0], lease=10)
    assert (again.key, again.handler) == ("e_1", "first")
    assert await kept.store.claim(claims[1], lease=10) is Standing.HANDLED


async def test_claim_of_an_event_that_no_handler_is_known_of(kept) -> None:
    """An event that was handled for none by name is a duplicate for all handlers."""
    claim = await kept.store.claim(delivery(handler=""), lease=10)
    await kept.store.handled(claim)

    assert (
        await kept.store.claim(delivery(handler="first"), lease=10) is Standing.HANDLED
    )
    assert await kept.store.claim(delivery(handler=""), lease=10) is Standing.HANDLED


async def test_assign(kept) -> None:
    """An event that was for all becomes one copy for each; a lost lease changes nothing."""
    await kept.store.put(delivery(handler=""))
    (entry,) = await kept.store.take(limit=1, lease=10)
    copies = [delivery(handler="first"), delivery(handler="second", ordering_key="k")]

    assert await kept.store.assign(entry, copies)
    assert not await kept.store.assign(entry, copies)

    found = await kept.store.take(limit=9, lease=10)
    assert [(one.handler, one.attempts, one.ordering_key) for one in found] == [
        ("first", 1, None),
        ("second", 1, "k"),
    ]
    assert found[0].key == "e_1"


async def test_assign_to_handlers_that_have_had_it(kept) -> None:
    """It then counts as handled, and its body, which may be personal data, is deleted."""
    claim = await kept.store.claim(
        Delivery(key="e_1", type="t", body=None, handler="first"), lease=10
    )
    await kept.store.put(delivery(handler=""))
    await kept.store.handled(claim)
    (entry,) = await kept.store.take(limit=1, lease=10)

    assert await kept.store.assign(entry, [delivery(handler="first")])

    found = await kept.store.events(state="handled")
    assert [(one.handler, one.body) for one in found] == [("first", None), ("", None)]


async def test_dead_letter_of_one_handler(kept) -> None:
    """It is a copy of its own, once, beside what another handler has of the event, which stays as it is."""
    await kept.store.put(delivery())

    assert not await kept.store.bury(delivery(), reason="why")
    assert await kept.store.bury(delivery(handler="second"), reason="why")
    assert not await kept.store.bury(delivery(handler="second"), reason="why")
    assert await kept.store.counts() == {"open": 1, "handled": 0, "dead": 1}


async def test_give_to_a_new_handler(kept) -> None:
    """A handler that has had the event does not get it again; a copy is no source."""
    await kept.store.put(delivery("e_1"), [delivery(None, handler="second")])
    await kept.store.put(delivery(None))
    for entry in await kept.store.take(limit=9, lease=10):
        assert await kept.store.handled(entry, body=entry.body)
    found = await kept.store.events()

    given = {
        name: [await kept.store.give(event, name) for event in found]
        for name in ("first", "second")
    }
    new = [await kept.store.give(event, "new") for event in found for _ in range(2)]

    assert given == {"first": [False, False, False], "second": [False, False, True]}
    assert new == [True, False, False, False, True, False]
    entries = await kept.store.take(limit=9, lease=10)
    assert sorted(entry.handler for entry in entries) == ["new", "new", "second"]
    times = {
        event.received_at
        for event in await kept.store.events()
        if event.handler == "new"
    }
    assert times <= {event.received_at for event in found}


async def test_give_before_the_handlers_are_known(kept) -> None:
    """An event that waits, and is for no handler yet, will be for all: none of them gets it twice."""
    await kept.store.put(delivery(handler=""))
    (event,) = await kept.store.events()

    assert not await kept.store.give(event, "first")
    (entry,) = await kept.store.take(limit=1, lease=10)
    assert not await kept.store.give(event, "first")
    assert await kept.store.assign(entry, [delivery(handler="first")])
    assert seen(await kept.store.take(limit=9, lease=10)) == [("e_1", "first")]


async def test_give_without_a_body(kept) -> None:
    """An event whose body was deleted, or which is gone, cannot be given."""
    await kept.store.put(delivery())
    (entry,) = await kept.store.take(limit=9, lease=10)
    await kept.store.handled(entry)
    (event,) = await kept.store.events()

    assert not await kept.store.give(event, "new")
    await kept.pass_time(100)
    await kept.store.prune(older_than=10)
    assert not await kept.store.give(event, "new")


async def put_in_order(store, number: int, *, key: str = "k") -> None:
    for each in range(number):
        await store.put(delivery(f"{key}_{each}", ordering_key=key))


@pytest.mark.parametrize(
    "end", ["handled", "kept", "dead", "dropped", "lease", "retry"]
)
async def test_order_of_a_key(kept, end: str) -> None:
    """The next event of a key is due once the one before is handled, dead or dropped, and not before."""
    await put_in_order(kept.store, 3)
    await kept.store.put(delivery("other"))

    taken = await kept.store.take(limit=9, lease=10)
    assert {entry.key for entry in taken} == {"k_0", "other"}
    head = next(entry for entry in taken if entry.key == "k_0")
    assert await kept.store.take(limit=9, lease=10) == []
    assert (await kept.store.backlog()).due == 0
    if end == "handled":
        await kept.store.handled(head)
    elif end == "kept":
        await kept.store.handled(head, body=b"{}")
    elif end == "dead":
        await kept.store.bury(head, reason="why")
    elif end == "dropped":
        await kept.store.release(head, delay=99)
        (event, *_) = await kept.store.events()
        assert await kept.store.drop(event)
    elif end == "lease":
        await kept.pass_time(11)
    else:
        await kept.store.release(head, delay=5)
        assert await kept.store.take(limit=9, lease=10) == []
        await kept.pass_time(6)

    found = [
        entry
        for entry in await kept.store.take(limit=9, lease=10)
        if entry.key != "other"
    ]
    assert [entry.key for entry in found] == (
        ["k_0"] if end in {"lease", "retry"} else ["k_1"]
    )
    assert found[0].ordering_key == "k"


async def test_order_of_a_key_when_one_that_waits_is_dropped(kept) -> None:
    """Dropping one that is not due makes no other due; the rest keep their order."""
    await put_in_order(kept.store, 4)
    (head,) = await kept.store.take(limit=9, lease=10)
    (_, second, *_) = await kept.store.events()

    assert await kept.store.drop(second)
    assert await kept.store.take(limit=9, lease=10) == []
    await kept.store.handled(head)

    (entry,) = await kept.store.take(limit=9, lease=10)
    assert entry.key == "k_2"


async def test_order_of_a_key_with_a_revived_dead_letter(kept) -> None:
    """A revived event that is assigned to its key again waits for the running one, and is then next."""
    await put_in_order(kept.store, 3)
    (head,) = await kept.store.take(limit=9, lease=10)
    await kept.store.bury(head, reason="why")
    (running,) = await kept.store.take(limit=9, lease=10)
    (letter,) = await kept.store.events(state="dead")
    assert await kept.store.revive(letter)
    (revived,) = await kept.store.take(limit=9, lease=10)
    assert (revived.key, revived.ordering_key) == ("k_0", None)

    assert await kept.store.assign(revived, [delivery(ordering_key="k")])
    assert await kept.store.take(limit=9, lease=10) == []
    await kept.store.handled(running)

    (entry,) = await kept.store.take(limit=9, lease=10)
    assert entry.key == "k_0"


async def test_order_of_a_key_for_several_handlers(kept) -> None:
    """Copies for several handlers may each have a key; one handler does not wait for the other."""
    for number in range(2):
        first = delivery(f"e_{number}", ordering_key="first k")
        await kept.store.put(
            first, [delivery(None, handler="second", ordering_key="second k")]
        )

    entries = await kept.store.take(limit=9, lease=10)
    assert sorted((one.handler, one.attempts) for one in entries) == [
        ("first", 1),
        ("second", 1),
    ]
    assert await kept.store.handled(entries[0])

    (entry,) = await kept.store.take(limit=9, lease=10)
    assert entry.handler == entries[0].handler


@pytest.mark.parametrize("claimed", ["first", "second", "both"])
async def test_put_for_several_handlers_of_a_claimed_event(kept, claimed: str) -> None:
    """A body that comes for claims without one is stored for all: its sender takes the event as stored."""
    names = ["first", "second"] if claimed == "both" else [claimed]
    for name in names:
        claim = Delivery(key="e_1", type="invoice.created", body=None, handler=name)
        await kept.store.claim(claim, lease=10)  # by a process that is killed
    for _ in range(2):
        assert not await kept.store.put(delivery(), [delivery(None, handler="second")])

    await kept.pass_time(11)
    found = await kept.store.take(limit=9, lease=10)
    assert sorted((entry.handler, entry.body) for entry in found) == [
        ("first", b"{}"),
        ("second", b"{}"),
    ]


async def test_put_of_an_event_that_another_handler_has_claimed(kept) -> None:
    """It is stored for its own handler; the claim of the other one stays as it is."""
    await kept.store.put(delivery("e_0"))
    claim = await kept.store.claim(
        Delivery(key="e_1", type="t", body=None, handler="old"), lease=10
    )
    assert not await kept.store.put(delivery(handler="new"))

    (entry,) = await kept.store.take(limit=9, lease=10, handlers=["new", "old"])
    assert (entry.handler, entry.body) == ("new", b"{}")
    assert await kept.store.handled(claim)


async def test_put_of_an_event_that_one_handler_has_handled(kept) -> None:
    """The claim of another one gets the body; what is handled is not handled again."""
    for name in ("first", "second"):
        claim = Delivery(key="e_1", type="t", body=None, handler=name)
        entry = await kept.store.claim(claim, lease=10)
        if name == "first":
            await kept.store.handled(entry)
    assert not await kept.store.put(
        delivery(), [delivery(None, handler="second"), delivery(None, handler="new")]
    )

    await kept.pass_time(11)
    (entry,) = await kept.store.take(limit=9, lease=10)
    assert (entry.handler, entry.body) == ("second", b"{}")


async def test_puts_and_claims_at_the_same_time(kept) -> None:
    """Whatever comes first, an event is new once at most, and each handler has it once, with a body."""
    chance = random.Random(1)
    new: dict[str, int] = {}

    async def put(number: int) -> None:
        key = f"e_{number % 10}"
        further = [delivery(None, handler="second")] if number % 3 else []
        first = delivery(key, ordering_key="k" if number % 2 else None)
        new[key] = new.get(key, 0) + await kept.store.put(first, further)

    async def claim(number: int) -> None:
        # sleeps: so that each comes at a moment of its own
        await asyncio.sleep(0.001 * chance.random())
        handler = chance.choice(["first", "second"])
        unfinished = Delivery(
            key=f"e_{number % 10}", type="t", body=None, handler=handler
        )
        await kept.store.claim(unfinished, lease=0)

    numbers = chance.sample(range(90), 90)
    await asyncio.gather(*map(put, numbers), *map(claim, numbers))

    found = await kept.store.events(limit=99)
    assert len({(event.key, event.handler) for event in found}) == len(found)
    assert {event.body for event in found if event.handler == "first"} == {b"{}"}
    assert set(new.values()) <= {0, 1}


async def test_order_of_keys_at_the_same_time(kept) -> None:
    """Whatever is put and handled at once, one event of a key is leased at a time, and none is left."""
    chance = random.Random(3)
    held: set[str] = set()
    done: dict[str, list[int]] = {name: [] for name in "abc"}

    async def put_all(key: str) -> None:
        for number in range(12):
            await kept.store.put(delivery(f"{key} {number}", ordering_key=key))

    async def work() -> None:
        while sum(map(len, done.values())) < 36:
            for entry in await kept.store.take(limit=2, lease=600):
                key, number = entry.key.split()
                assert key not in held
                held.add(key)
                await asyncio.sleep(0)
                held.discard(key)
                if chance.random() < 0.2:
                    await kept.store.release(entry, delay=0)
                    continue
                done[key].append(int(number))
                await kept.store.handled(entry)
            await asyncio.sleep(0)

    async with asyncio.timeout(300):
        await asyncio.gather(*map(put_all, done), *(work() for _ in range(3)))

    assert done == {key: list(range(12)) for key in "abc"}


async def test_events_without_a_key(kept) -> None:
    """Each is an event of its own, under no key that could be that of another one."""
    for _ in range(2):
        assert await kept.store.put(delivery(None), [delivery(None, handler="second")])
    found = await kept.store.events()

    assert [event.key for event in found] == [None] * 4
    assert [await kept.store.give(event, "second") for event in found] == [False] * 4
    assert [await kept.store.give(event, "new") for event in found] == [
        True,
        False,
        True,
        False,
    ]


async def test_assign_to_handlers_that_have_had_the_event(kept) -> None:
    """Nobody gets it again; what a claim of one of them lacks is stored."""
    await kept.store.put(delivery("e_1"))
    (first,) = await kept.store.take(limit=1, lease=10)
    await kept.store.handled(first, body=b"{}")
    claim = await kept.store.claim(
        Delivery(key="e_2", type="t", body=None, handler="second"), lease=10
    )
    assert await kept.store.put(delivery("e_3", handler=""))
    (entry,) = await kept.store.take(limit=1, lease=10)
    assert await kept.store.assign(
        entry, [delivery("e_3"), delivery("e_3", handler="second")]
    )
    assert {one.handler for one in await kept.store.take(limit=9, lease=10)} == {
        "first",
        "second",
    }

    # by a receiver that has no handler for it
    await kept.store.put(delivery("e_2", handler=""))
    (entry,) = await kept.store.take(limit=1, lease=10, handlers=[""])
    assert await kept.store.assign(entry, [delivery("e_2", handler="second")])
    assert await kept.store.release(claim, delay=0)

    (again,) = await kept.store.take(limit=9, lease=10)
    assert (again.key, again.handler, again.body) == ("e_2", "second", b"{}")


async def test_sqlite_order_of_a_key_after_a_reboot(tmp_path, monkeypatch) -> None:
    """Leases of before a reboot end; events that wait for others of their key still wait."""
    path = tmp_path / "events.db"
    before = events.SqliteStore(path, steady=lambda: 1e6)
    await put_in_order(before, 3)
    assert len(await before.take(limit=9, lease=60)) == 1
    await before.close()
    monkeypatch.setattr(sqlite_file, "boot", lambda: "the next run of the machine")
    after = events.SqliteStore(path, steady=lambda: 5.0)

    assert seen(await after.take(limit=9, lease=60)) == [("k_0", "first")]
    await after.close()


async def test_memory_store_that_is_full() -> None:
    """What no longer fits is refused whole, and finished events make room."""
    store = events.MemoryStore(capacity=3)
    await store.put(delivery("a"), [delivery(None, handler="second")])
    with pytest.raises(JournalError):
        await store.put(delivery("b"), [delivery(None, handler="second")])
    assert (await store.counts())["open"] == 2

    (entry,) = await store.take(limit=1, lease=10)
    await store.handled(entry)
    assert await store.put(delivery("b"), [delivery(None, handler="second")])
