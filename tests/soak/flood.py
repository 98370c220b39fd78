"""
Strangers who send all they can to a receiver, while signed events come.

    python -m tests.soak.flood [SECONDS [CONNECTIONS [MEGABYTES_A_SECOND [NICE]]]]

Strangers hold the connections all the time, in processes of their own, and send what a stranger can: whole
bodies of 1 MiB with a forged signature, bodies that hardly come on, small forged ones, chunks without a
length, and requests that their headers rule out.  Every signed event of 8 kB must be answered 2xx within 2 s,
and the receiver's memory stay within its bound.  On a machine that others use, a negative NICE gives the receiver,
and who sends the signed events, a turn before the others.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from invsvc_async import events
from tests.events.bodies import SECRET, encoded, headers_of, signed_body
from tests.support.children import first_lines, gone_after, started

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

_PROCESSES: Final = 2  # of strangers
_MIB: Final = 2**20
_PIECE: Final = 65_536  # bytes that a stranger sends at once
_EVENT: Final = 8_000  # bytes of a signed event
_EVERY: Final = 0.1  # s between two signed events
_WITHIN: Final = 2.0  # s for the answer
_PATIENCE: Final = 30.0  # s until a signed event counts as not answered
# Bytes of a connection that nobody has read yet: one read of asyncio, beyond what aiohttp keeps before it pauses.
_OF_A_CONNECTION: Final = (256 + 128) * 1024
_BODIES: Final = 64 * _MIB


# --- the receiver


async def receive(store: str, nice: int) -> None:
    """Receive in aiohttp until the end of this process."""
    from aiohttp import web

    os.nice(nice)
    # each refusal is a line
    logging.getLogger("invsvc_async").setLevel(logging.CRITICAL)
    receiver = events.Receiver(secrets=[SECRET], mode="inbox", store=store)

    @receiver.on("*")
    async def handle(_event: events.Event) -> None:
        """Do nothing with an event."""

    app = web.Application()
    app.router.add_post("/in", receiver.aiohttp_handler)
    runner = web.AppRunner(app, access_log=None)
    async with receiver:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=2048).start()
        print(runner.addresses[0][1], flush=True)  # noqa: T201 - who has started it reads it
        await asyncio.Event().wait()


# --- strangers


class _Pace:
    """So many bytes a second for all connections of a process."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._next = time.monotonic()

    async def take(self, size: int) -> None:
        """Wait until *size* bytes may be sent."""
        now = time.monotonic()
        self._next = max(self._next, now - 0.2) + size / self._rate
        await asyncio.sleep(self._next - now)


_FORGED: Final = "X-Service-Signature: sha256=" + "0" * 64
KINDS: Final = {  # the credential and how long the body is said to be, and how much comes at once
    "whole, forged": (_FORGED, _MIB, _PIECE),
    "slow, forged": (_FORGED, _MIB, 512),
    "small, forged": (_FORGED, _EVENT, _PIECE),
    "chunks, forged": (_FORGED, None, _PIECE),
    "signature of another form": ("X-Service-Signature: sha256=00", _MIB, _PIECE),
    "a test": ("X-Service-Test: true", _MIB, _PIECE),
    "no credential": ("X-Other: x", _MIB, _PIECE),
}
_NAMES: Final = [*KINDS, "whole, forged", "whole, forged", "slow, forged"]


async def _pieces(kind: str, pace: _Pace) -> AsyncIterator[bytes]:
    """Yield a request of *kind* in pieces."""
    credential, length, at_once = KINDS[kind]
    said = (
        "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    )
    lines = [
        "POST /in HTTP/1.1",
        "Host: me.example",
        "Content-Type: application/json",
        said,
        credential,
    ]
    yield "\r\n".join([*lines, "", ""]).encode()
    left = _MIB if length is None else length
    while left > 0:
        size = min(at_once, left)
        if at_once < _PIECE:
            await asyncio.sleep(0.5)
        await pace.take(size)
        piece = b"x" * size
        yield (
            piece if length is not None else f"{size:x}\r\n".encode() + piece + b"\r\n"
        )
        left -= size
    if length is None:
        yield b"0\r\n\r\n"


async def _stranger(
    port: int, pace: _Pace, until: float, told: Counter[str], chance: random.Random
) -> None:
    """Send one request after the other, each on a connection of its own."""
    while time.monotonic() < until:
        kind = chance.choice(_NAMES)
        writer = None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            async for piece in _pieces(kind, pace):
                writer.write(piece)
                await writer.drain()
                told["bytes"] += len(piece)
                if time.monotonic() > until:
                    break
            async with asyncio.timeout(10):
                status = (await reader.read(4096)).split(b" ", 2)[1].decode()
        except (OSError, TimeoutError, IndexError):
            status = "cut off"
        told[f"answer {status}"] += 1
        if writer is not None:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def strangers(
    port: int, seconds: float, connections: int, rate: float, seed: int
) -> None:
    """Send as *connections* strangers, and print what was sent and answered."""
    chance = random.Random(seed)
    told: Counter[str] = Counter()
    pace = _Pace(rate)
    until = time.monotonic() + seconds
    sending = [
        asyncio.create_task(_stranger(port, pace, until, told, chance))
        for _ in range(connections)
    ]
    await asyncio.wait(sending, timeout=seconds + 15)
    for task in sending:
        task.cancel()
    print(json.dumps(told), flush=True)  # noqa: T201 - who has started it reads it


# --- signed events


def _event(number: int) -> bytes:
    body = encoded(
        signed_body("sat.invoice.synced", number=number, padding="x" * (_EVENT - 520))
    )
    head = "".join(
        f"{name}: {value}\r\n" for name, value in headers_of(body, signed=True).items()
    )
    return f"POST /in HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode() + body


async def _deliver(port: int, number: int) -> tuple[int, float]:
    """Send one signed event once; return its answer, 0 if there is none, and after how many seconds."""
    begun = time.monotonic()
    status = 0
    with suppress(OSError, TimeoutError, IndexError):
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(_event(number))
            status = int((await reader.readline()).split(b" ", 2)[1])
            writer.close()
    return status, time.monotonic() - begun


async def deliver(port: int, seconds: float, nice: int) -> None:
    """Send signed events at a steady pace, however long answers take, and print what came."""
    os.nice(nice)
    sending = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sending.append(asyncio.create_task(_deliver(port, len(sending))))
        await asyncio.sleep(_EVERY)
    found = await asyncio.gather(*sending)
    print(json.dumps(found), flush=True)  # noqa: T201 - who has started it reads it


# --- all together


def cpu_of(pid: int) -> float:
    """Return how many seconds of CPU time a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int, name: str) -> int:
    """Return how many bytes a process has: ``VmRSS`` now, ``VmHWM`` at most so far."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


async def flood(
    seconds: float, connections: int, megabytes: float, nice: int
) -> dict[str, object]:
    """Run it, and return what was found."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        )

        async def run(*arguments: object) -> asyncio.subprocess.Process:
            return await stack.enter_async_context(
                gone_after(await started("tests.soak.flood", *arguments))
            )

        receiver = await run("receive", Path(folder) / "events.db", nice)
        port = (await first_lines(receiver, 1))[0]
        for number in range(20):  # warm
            await _deliver(int(port), 10**6 + number)
        before = memory_of(receiver.pid, "VmRSS")
        had = cpu_of(receiver.pid)
        each = connections // _PROCESSES
        rate = megabytes * 1e6 / _PROCESSES
        floods = [
            await run("strangers", port, seconds, each, rate, seed)
            for seed in range(_PROCESSES)
        ]
        await asyncio.sleep(2.0)
        events_sent = await run("deliver", port, seconds - 4.0, nice)
        [answers] = await first_lines(events_sent, 1)
        spent = cpu_of(receiver.pid) - had
        told: Counter[str] = Counter()
        for one in floods:
            told.update(json.loads((await first_lines(one, 1))[0]))
        peak = memory_of(receiver.pid, "VmHWM")
    found = _summary(json.loads(answers), told, seconds, connections, (before, peak))
    return found | {
        "CPU of the receiver, % of a core": round(100 * spent / seconds),
        "load": os.getloadavg()[0],
    }


def _summary(
    answers: Sequence[tuple[int, float]],
    told: Counter[str],
    seconds: float,
    connections: int,
    memory: tuple[int, int],
) -> dict[str, object]:
    before, peak = memory
    took = sorted(each for _, each in answers)
    wrong = Counter(
        str(status or "none") for status, _ in answers if not 200 <= status < 300
    )
    bound = _BODIES + connections * _OF_A_CONNECTION
    return {
        "seconds": seconds,
        "connections of strangers": connections,
        "MB a second from strangers": round(told.pop("bytes") / seconds / 1e6, 1),
        "answers to strangers": dict(sorted(told.items())),
        "signed events of 8 kB": len(answers),
        "answered 2xx": sum(200 <= status < 300 for status, _ in answers),
        "answered otherwise": dict(wrong),
        "answered after more than 2 s": sum(each > _WITHIN for each in took),
        "seconds until the last late one": round(_EVERY * _last_late(answers), 1),
        "slowest answer, ms": round(took[-1] * 1000),
        "99 % of the answers within, ms": round(took[int(len(took) * 0.99) - 1] * 1000),
        "median answer, ms": round(took[len(took) // 2] * 1000),
        "memory before, MB": round(before / 1e6),
        "memory at most, MB": round(peak / 1e6),
        "growth that is allowed, MB": round(bound / 1e6),
        "cores": os.cpu_count(),
    }


def _last_late(answers: Sequence[tuple[int, float]]) -> int:
    """Return the number of the last event that was answered too late; 0 if none was."""
    return max(
        (number for number, (_, took) in enumerate(answers, 1) if took > _WITHIN),
        default=0,
    )


def main(
    seconds: float = 60.0,
    connections: float = 1000,
    megabytes: float = 100.0,
    nice: float = 0,
) -> int:
    """Run it, print what was found, and return 1 if an event was refused or late, or memory grew too much."""
    found = asyncio.run(flood(seconds, int(connections), megabytes, int(nice)))
    print(json.dumps(found))  # noqa: T201 - a command
    grown = float(str(found["memory at most, MB"])) - float(
        str(found["memory before, MB"])
    )
    is_broken = (
        found["answered 2xx"] != found["signed events of 8 kB"]
        or found["answered after more than 2 s"] != 0
        or grown > float(str(found["growth that is allowed, MB"]))
    )
    return 1 if is_broken else 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["receive", store, nice]:
            asyncio.run(receive(store, int(nice)))
        case ["strangers", port, *numbers]:
            seconds, connections, rate, seed = map(float, numbers)
            asyncio.run(
                strangers(int(port), seconds, int(connections), rate, int(seed))
            )
        case ["deliver", port, seconds, nice]:
            asyncio.run(deliver(int(port), float(seconds), int(nice)))
        case numbers:
            sys.exit(main(*map(float, numbers)))
