"""What operators do with a store: list, count, revive, drop, keep, prune."""

from __future__ import annotations

import pytest

from invsvc_async import events
from invsvc_async.errors import ConfigurationError
from invsvc_async.events import Delivery, Standing
from invsvc_async.events.stores import Entry, Store
from tests.events.bodies import delivery

pytestmark = pytest.mark.one_python


async def taken(store: Store) -> Entry:
    (entry,) = await store.take(limit=1, lease=10)
    return entry


async def fill(store: Store) -> None:
    """Store a handled event with its body, a handled one, a dead one, one that waits, and a claim."""
    await store.put(delivery("kept", body=b"kept"))
    await store.handled(await taken(store), body=b"kept")
    await store.put(delivery("handled"))
    await store.handled(await taken(store))
    await store.put(delivery("dead", body=b"dead"))
    await store.bury(await taken(store), reason="why")
    await store.put(delivery("waits"))
    await store.claim(delivery("claimed", body=None), lease=10)


async def test_events_by_pages(kept) -> None:
    """Pages are by ascending id and of the wished state; bodies of handled events are there if kept."""
    await fill(kept.store)

    first = await kept.store.events(limit=3)
    rest = await kept.store.events(limit=3, after=first[-1].id)

    shown = [
        (event.key, event.state, event.body, event.reason) for event in (*first, *rest)
    ]
    assert shown == [
        ("kept", "handled", b"kept", ""),
        ("handled", "handled", None, ""),
        ("dead", "dead", b"dead", "why"),
        ("waits", "open", b"{}", ""),
        ("claimed", "open", None, ""),
    ]
    assert [event.key for event in await kept.store.events(state="open")] == [
        "waits",
        "claimed",
    ]
    assert await kept.store.events(state="dead", after=first[2].id) == []


async def test_stats_by_state(kept) -> None:
    """Each state has its number and the time of its oldest event."""
    await fill(kept.store)
    every = await kept.store.events()

    found = await kept.store.stats()

    assert {state: one.count for state, one in found.items()} == {
        "open": 2,
        "handled": 2,
        "dead": 1,
    }
    for state, one in found.items():
        assert one.oldest == min(
            event.received_at for event in every if event.state == state
        )


async def test_stats_of_an_empty_store(kept) -> None:
    """Nothing has no age."""
    assert {(one.count, one.oldest) for one in (await kept.store.stats()).values()} == {
        (0, None)
    }


async def test_revive_of_a_handled_event(kept) -> None:
    """It is handled anew if its body was kept, with new attempts, and only once."""
    await fill(kept.store)
    by_key = {event.key: event for event in await kept.store.events()}

    assert not await kept.store.revive(by_key["handled"])
    assert not await kept.store.revive(by_key["waits"])
    assert await kept.store.revive(by_key["kept"])
    assert not await kept.store.revive(by_key["kept"])

    found = await kept.store.take(limit=9, lease=10)
    assert {(entry.key, entry.body, entry.attempts) for entry in found} == {
        ("waits", b"{}", 1),
        ("kept", b"kept", 1),
    }
    for entry in found:
        assert await kept.store.handled(entry)
    assert not await kept.store.put(delivery("kept"))


async def test_revive_ends_older_leases(kept) -> None:
    """The holder of before the burial can no longer change a revived event."""
    await kept.store.put(delivery())
    entry = await taken(kept.store)
    await kept.store.bury(entry, reason="x")
    (letter,) = await kept.store.events(state="dead")
    await kept.store.revive(letter)

    assert not await kept.store.handled(entry)
    assert not await kept.store.release(entry, delay=0)


async def test_drop(kept) -> None:
    """The body goes and the key stays; what is leased, or still with its sender, is not dropped."""
    await fill(kept.store)
    await kept.store.put(delivery("leased"))
    held = next(
        entry
        for entry in await kept.store.take(limit=9, lease=10)
        if entry.key == "leased"
    )
    for entry in await kept.store.events():
        if entry.key == "waits":  # it was leased too
            await kept.pass_time(11)
            held = await kept.store.claim(delivery("leased"), lease=10)
    by_key = {event.key: event for event in await kept.store.events()}

    dropped = {key: await kept.store.drop(event) for key, event in by_key.items()}

    assert dropped == {
        "kept": True, "handled": False, "dead": True, "waits": True, "claimed": False, "leased": False,
    }  # fmt: skip
    assert isinstance(held, Entry)
    assert await kept.store.handled(held)
    left = [event for event in await kept.store.events() if event.key != "claimed"]
    assert {(event.state, event.body) for event in left} == {("handled", None)}
    for key in ("kept", "dead", "waits"):
        assert (
            await kept.store.claim(delivery(key, body=None), lease=10)
            is Standing.HANDLED
        )
    assert not await kept.store.drop(by_key["dead"])


async def test_drop_without_a_key(kept) -> None:
    """Nothing is left of it."""
    await kept.store.bury(
        Delivery(key=None, type="", body=b"\xff"), reason="unreadable"
    )
    (letter,) = await kept.store.events(state="dead")

    assert await kept.store.drop(letter)
    assert not await kept.store.drop(letter)
    assert await kept.store.events() == []


async def test_retention_by_state(kept) -> None:
    """Bodies, dead letters and handled events go each in their time."""
    await fill(kept.store)
    await kept.pass_time(100)

    async def left(**ages: float) -> dict[str | None, bytes | None]:
        await kept.store.prune(**ages)
        return {event.key: event.body for event in await kept.store.events()}

    whole = {
        "kept": b"kept",
        "handled": None,
        "dead": b"dead",
        "waits": b"{}",
        "claimed": None,
    }
    assert await left(older_than=200, bodies=150, dead=150) == whole
    assert await left(older_than=200, bodies=50) == whole | {"kept": None}
    assert await left(older_than=200, dead=50) == {
        "kept": None, "handled": None, "waits": b"{}", "claimed": None
    }  # fmt: skip
    assert await left(older_than=50) == {"waits": b"{}"}


@pytest.mark.parametrize(
    "given",
    [
        {"keep_bodies": 0.0},
        {"keep": 10.0, "keep_bodies": 11.0},
        {"keep_dead": -1},
        {"keep_bodies": "1"},
    ],
)
def test_times_that_make_no_sense(given) -> None:
    """They are refused in words."""
    with pytest.raises(ConfigurationError, match="keep_"):
        events.InboxPolicy(**given)


async def test_sqlite_file_shrinks_again(tmp_path) -> None:
    """Space of what was pruned goes back to the file system."""
    path = tmp_path / "events.db"
    store = events.SqliteStore(path, clock=lambda: 0.0)
    for number in range(40):
        await store.put(delivery(f"d_{number}", body=b"x" * 20_000))
    await store.close()
    large = path.stat().st_size
    for entry in await store.take(limit=40, lease=10):
        await store.handled(entry)

    await store.prune(older_than=-1)
    await store.close()

    assert large > 800_000
    assert path.stat().st_size < 100_000
