"""The room for bodies: small ones have their own, and the slowest gives way."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from invsvc_async import events
from invsvc_async.events.receiving.body_room import BodyRoom
from tests.events.bodies import SECRET, filled

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.one_python

LARGEST = 1600  # so 102,400 bytes in all, 25,600 of them for bodies of up to 100 bytes
SMALL = 100


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def hold(room, stack, size, length=None):
    """Return a body of which *size* bytes have come, and whether there was room for them."""
    body = stack.enter_context(room.body(length))
    return body, body.add(b"x" * size)


def test_small_bodies_beside_large_ones(stack) -> None:
    """Large bodies, also whole ones, leave the room of small ones alone, and the other way round."""
    room = BodyRoom(LARGEST)
    for _ in range(48):
        body, has_room = hold(room, stack, 1600, 1600)
        assert has_room
        assert body.whole() == b"x" * 1600

    assert not hold(room, stack, 1600, 1600)[1]
    for _ in range(256):
        body, has_room = hold(room, stack, SMALL, SMALL)
        assert has_room
        assert body.whole() == b"x" * SMALL
    assert not hold(room, stack, 1, 1)[1]


@pytest.mark.parametrize(("size", "most"), [(SMALL, 256), (1600, 48)])
def test_slowest_body(stack, caplog, size: int, most: int) -> None:
    """The unfinished body that has been under way for longest gives its part up; a whole one keeps it."""
    caplog.set_level(logging.WARNING)
    room = BodyRoom(LARGEST)
    whole, _ = hold(room, stack, size, size)
    assert whole.whole() is not None
    many = (most - 1) * size // (size - 1)
    unfinished = [hold(room, stack, size - 1, size)[0] for _ in range(many)]

    new, has_room = hold(room, stack, size, size)

    assert has_room
    assert [each.is_refused for each in unfinished] == [True] + [False] * (many - 1)
    assert unfinished[0].chunks == b""
    assert not unfinished[0].add(b"x")
    assert unfinished[0].whole() is None
    assert new.whole() == b"x" * size
    assert unfinished[1].add(b"x")
    assert unfinished[1].whole() == b"x" * size
    assert "102400 bytes" in caplog.text


def test_slowest_body_that_is_its_own(stack) -> None:
    """A body that would need the room that it holds itself, as the oldest, is refused."""
    room = BodyRoom(LARGEST)
    slow, _ = hold(room, stack, 1, 1600)
    with filled(room, but_for=1):
        assert not slow.add(b"x" * 1000)

    assert slow.is_refused
    assert hold(room, stack, 1600, 1600)[1]


def test_body_of_no_length(stack) -> None:
    """It counts as small until it is not: then it needs room among the large ones, for all of it."""
    room = BodyRoom(LARGEST)
    body, _ = hold(room, stack, SMALL)
    for _ in range(48):
        assert hold(room, stack, 1600, 1600)[0].whole() is not None

    assert not body.add(b"x")
    assert all(hold(room, stack, SMALL, SMALL)[1] for _ in range(256))


def test_room_that_is_given_back() -> None:
    """At the end of its block a body gives back all it had, whole, unfinished or refused."""
    room = BodyRoom(LARGEST)
    for _ in range(3):
        with filled(room), room.body(1) as refused:
            assert not refused.add(b"x")
        with room.body() as growing:
            assert growing.add(b"x" * SMALL)
            assert growing.add(b"x" * SMALL)
            assert growing.whole() == b"x" * 2 * SMALL


def test_pace_of_large_bodies(stack) -> None:
    """Together they are read at 32 MiB in a second, after a burst; a small one never waits."""
    room = BodyRoom(LARGEST)
    mib = 2**20
    small, _ = hold(room, stack, 1, SMALL)
    first, _ = hold(room, stack, 1, 1600)
    second, _ = hold(room, stack, 1, 1600)
    growing, _ = hold(room, stack, 1)

    assert first.pause(6 * mib, 1000.0) == 0.0
    assert first.pause(32 * mib, 1000.0) == pytest.approx(1.0 - 0.2 + 6 / 32)
    assert second.pause(32 * mib, 1000.0) == pytest.approx(2.0 - 0.2 + 6 / 32)
    assert [each.pause(32 * mib, 1000.0) for each in (small, growing)] == [0.0, 0.0]
    assert growing.add(b"x" * SMALL)
    assert growing.pause(0, 1000.0) == pytest.approx(2.0 - 0.2 + 6 / 32)
    assert second.pause(3 * mib, 2000.0) == 0.0


async def test_reading_of_a_large_body_among_others() -> None:
    """The receiver waits between two pieces of it, as long as the room says, but not beyond the deadline."""
    receiver = events.Receiver(secrets=SECRET, deadline=0.5)
    head = {"Content-Type": "application/json", "Content-Length": "1000000"}
    signature = {"X-Service-Signature": "sha256=" + "0" * 64}
    asked = []

    async def pieces():
        for _ in range(3):
            asked.append(len(asked))
            yield b"x" * 1000

    with receiver.room.body(1_000_000) as other:
        now = asyncio.get_running_loop().time()
        assert other.pause(2**30, now) > 30.0
        receipt = await receiver.answer("POST", head | signature, pieces())

    assert receipt.status == 408
    assert asked == [0]


def test_body_in_a_repr() -> None:
    """It shows a length alone."""
    with BodyRoom(LARGEST).body() as body:
        assert body.add(b"hush")
        assert repr(body) == "<a body of 4 bytes so far>"
