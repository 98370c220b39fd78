"""What is sent to a server, over connections that break as its workers end."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Final

import attrs

from tests.events.bodies import encoded, headers_of, signed_body, v2

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

NO_ANSWER: Final = 0
_SENDERS: Final = 6
_PAUSE: Final = 0.1  # s between two tries of the same event
_BETWEEN: Final = 0.5  # s between two events of one sender, at most
_PATIENCE: Final = 30.0  # s until a request counts as not answered


@attrs.frozen(kw_only=True)
class Delivery:
    """One event: its key in the receiver's store, the whole request, and whether it is sent only once."""

    key: str
    request: bytes
    is_sent_once: bool


def deliveries(first: int) -> Iterator[Delivery]:
    """Return events without end, each fifth of which is signed and sent once, as the service does."""
    for number in count(first):
        yield _signed(number) if number % 5 == 0 else _resource(number)


def _signed(number: int) -> Delivery:
    body = encoded(signed_body("sat.invoice.synced", number=number))
    return Delivery(
        key=f"evt_{number:016x}",
        request=request(body, headers_of(body, signed=True)),
        is_sent_once=True,
    )


def _resource(number: int) -> Delivery:
    body = encoded(v2("invoice.created", number=number))
    return Delivery(
        key=f"dlv_{number}",
        request=request(body, headers_of(body, shared=True)),
        is_sent_once=False,
    )


def request(body: bytes, headers: dict[str, str]) -> bytes:
    """Return a whole request, after which the connection is closed."""
    lines = [
        f"{name}: {value}\r\n"
        for name, value in {**headers, "Connection": "close"}.items()
    ]
    return f"POST /events HTTP/1.1\r\n{''.join(lines)}\r\n".encode() + body


async def exchange(port: int, *parts: bytes, pause: float = 0.0) -> int:
    """Send *parts* with pauses between them, and return the status of the answer."""
    writer = None
    try:
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for number, part in enumerate(parts):
                if number:
                    await asyncio.sleep(pause)
                writer.write(part)
                await writer.drain()
            return await _status(reader)
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return NO_ANSWER if writer is None else await _left_over(reader)
    finally:
        if writer is not None:
            writer.close()


async def _status(reader: asyncio.StreamReader) -> int:
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if status != 100:  # which only tells to go on
            return status


async def _left_over(reader: asyncio.StreamReader) -> int:
    """Return the status of an answer that came before the connection broke."""
    try:
        async with asyncio.timeout(1.0):
            return await _status(reader)
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return NO_ANSWER


@attrs.define
class Sent:
    """What became of what was sent."""

    acknowledged: set[str] = attrs.field(factory=set)  # keys that were answered 2xx
    sent: set[str] = attrs.field(factory=set)
    answers: Counter[int] = attrs.field(factory=Counter)
    is_over: bool = False  # nothing new is sent any more


async def send_all(port: int, first: int, sent: Sent, chance: random.Random) -> None:
    """Send events until *sent* is over: resource events until they are answered 2xx, signed ones once."""
    left = deliveries(first)
    await asyncio.gather(*(_send(port, left, sent, chance) for _ in range(_SENDERS)))


async def _send(
    port: int, left: Iterator[Delivery], sent: Sent, chance: random.Random
) -> None:
    for delivery in left:
        if sent.is_over:
            break
        sent.sent.add(delivery.key)
        while True:
            status = await exchange(port, delivery.request)
            sent.answers[status] += 1
            if 200 <= status < 300:
                sent.acknowledged.add(delivery.key)
                break
            if delivery.is_sent_once:
                break
            await asyncio.sleep(_PAUSE)
        await asyncio.sleep(chance.uniform(0.0, _BETWEEN))
