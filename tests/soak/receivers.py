"""
Several processes that receive on one store, opened, closed and killed at random.

    python -m tests.soak.receivers [DELIVERIES [PROCESSES [sqlite|postgres [SEED]]]]

A tenth of the deliveries is forged, another third are duplicates.  A delivery that is not answered is sent
again.  At the end every event must have been handled, no forged one, and none by two processes at one time.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from invsvc_async import events
from invsvc_async.events.receiving import worker
from invsvc_async.events.stores import open_store
from tests.events.bodies import SHARED, encoded, headers_of, v2
from tests.support.children import first_lines, started

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from invsvc_async.events import Store

_FORGED = 0.1
_SENDERS = 16
AT_ONCE = 8  # events that one process handles
_PAUSE = (0.3, 2.0)  # s between two ends of processes
_LEASE = 8.0  # s for a handler, which takes milliseconds: a process that the machine stops for so long is rare


class Receiver:
    """A process that receives; it can be killed, or told to close, and is then started anew."""

    def __init__(self, store: str, log: Path) -> None:
        self._command = "tests.soak.receivers", "receive", store, log
        self.ended: dict[int, float] = {}

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        self._process = await started(*self._command)
        [port] = await first_lines(self._process, 1)
        self.port = int(port)

    async def end(self, how: signal.Signals) -> None:
        """End it with a signal, and note when it was certainly gone."""
        self._process.send_signal(how)
        await self._process.wait()
        self.ended[self._process.pid] = time.monotonic()


async def receive(store: str, log: str) -> None:
    """Receive until the signal to close, and write the beginning and end of each handling to *log*."""
    # not of each forged delivery
    logging.getLogger("invsvc_async").setLevel(logging.ERROR)
    worker._MARGIN = 2.0  # s
    written = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    policy = events.InboxPolicy(
        timeout=_LEASE - 2.0, poll=0.05, concurrency=AT_ONCE, initial=0.01
    )
    header = events.SharedHeader(*SHARED)
    receiver = events.Receiver(
        secrets=(), shared_header=header, mode="inbox", store=store, inbox=policy
    )

    def tell(what: str, key: str | None) -> None:
        os.write(written, f"{what} {key} {os.getpid()} {time.monotonic()}\n".encode())

    @receiver.on("*")
    async def handle(event: events.Event) -> None:
        tell("begin", event.dedupe_key)
        await asyncio.sleep(random.random() * 0.01)
        tell("end", event.dedupe_key)

    from aiohttp import web

    app = web.Application()
    app.router.add_post("/in", receiver.aiohttp_handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    closing = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, closing.set)
    async with receiver:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(runner.addresses[0][1], flush=True)  # noqa: T201 - who has started it reads it
        await closing.wait()
        await runner.cleanup()


def requests_of(
    chance: random.Random, deliveries: int
) -> tuple[list[tuple[bytes, int]], set[str]]:
    """Return deliveries with the wanted answers, in random order, and the keys of the authentic events."""
    authentic = deliveries * 2 // 3
    numbers = list(range(authentic))
    forged = int(deliveries * _FORGED)
    numbers += [
        chance.randrange(authentic) for _ in range(deliveries - authentic - forged)
    ]
    made = [(number, True) for number in numbers] + [
        (authentic + number, False) for number in range(forged)
    ]
    chance.shuffle(made)
    return [_request(number, is_authentic=each) for number, each in made], {
        f"dlv_{number}" for number in range(authentic)
    }


def _request(number: int, *, is_authentic: bool) -> tuple[bytes, int]:
    body = encoded(v2("invoice.created", number=number))
    headers = headers_of(body, shared=True)
    if not is_authentic:
        headers[SHARED[0]] = "guessed"
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return (
        b"POST /in HTTP/1.1\r\n" + head.encode() + b"\r\n" + body,
        200 if is_authentic else 401,
    )


async def send(
    requests: Iterator[tuple[bytes, int]],
    receivers: list[Receiver],
    chance: random.Random,
    answers: Counter[str],
) -> None:
    """Send each request, again until it is answered as wanted."""
    writer: asyncio.StreamWriter | None = None
    for request, wanted in requests:
        while True:
            try:
                if writer is None:
                    reader, writer = await asyncio.open_connection(
                        "127.0.0.1", chance.choice(receivers).port
                    )
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(
                    int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                )
                status = int(head.split(b" ", 2)[1])
            except (OSError, asyncio.IncompleteReadError):
                if writer is not None:
                    writer.close()
                writer, status = None, 0
                await asyncio.sleep(0.02)
            answers[str(status or "none")] += 1
            if status == wanted:
                break
            assert status in {0, 503}, f"a delivery was answered {status}, not {wanted}"
    if writer is not None:
        writer.close()


def judge(
    lines: Iterable[str], keys: set[str], ended: dict[int, float]
) -> Counter[str]:
    """Count what was handled, lost, forged, and handled by two at one time; *ended*: when processes ended."""
    handlings: dict[str, list[list[float]]] = {}
    last: dict[tuple[str, str], list[float]] = {}
    for line in lines:
        what, key, process, at = line.split()
        if what == "begin":
            last[key, process] = [float(at), ended.get(int(process), float("inf"))]
            handlings.setdefault(key, []).append(last[key, process])
        else:
            last[key, process][1] = float(at)
    found = Counter(
        {
            "lost": len(keys - set(handlings)),
            "forged": len(set(handlings) - keys),
            "at once": 0,
        }
    )
    for spans in handlings.values():
        spans.sort()
        found["handlings"] += len(spans)
        found["handled again"] += len(spans) - 1
        found["at once"] += sum(
            later[0] < former[1] for former, later in itertools.pairwise(spans)
        )
    return found


async def until_handled(store: Store, number: int) -> None:
    """Wait until all events in *store* are handled."""
    async with asyncio.timeout(300):
        while dict(await store.counts()) != {"open": 0, "handled": number, "dead": 0}:  # noqa: ASYNC110
            await asyncio.sleep(0.5)


async def soak(
    address: str,
    folder: Path,
    *,
    deliveries: int,
    processes: int,
    seed: int,
    ends: int,
    how: tuple[signal.Signals, ...] = (signal.SIGKILL, signal.SIGTERM),
) -> dict[str, int]:
    """Run it, with at least *ends* ends of processes, and return what was found."""
    chance = random.Random(seed)
    requests, keys = requests_of(chance, deliveries)
    log, answers, left = folder / "log", Counter[str](), iter(requests)
    receivers = [Receiver(address, log) for _ in range(processes)]
    await asyncio.gather(*(receiver.start() for receiver in receivers))
    sending = asyncio.gather(
        *(send(left, receivers, chance, answers) for _ in range(_SENDERS))
    )
    kinds: Counter[str] = Counter()
    while not sending.done() or kinds.total() < ends:
        await asyncio.sleep(chance.uniform(*_PAUSE))
        one, victim = chance.choice(how), chance.choice(receivers)
        await victim.end(one)
        kinds[one.name] += 1
        await victim.start()
    await sending
    store = open_store(address)
    await until_handled(store, len(keys))
    stored = {event.key for event in await store.events(limit=len(requests))}
    await store.close()
    for receiver in receivers:
        await receiver.end(signal.SIGTERM)
    found = judge(
        log.read_text().splitlines(),
        keys,
        {at: when for one in receivers for at, when in one.ended.items()},
    )
    found["lost"] += len(keys - stored)
    found["forged"] += len(stored - keys)
    counted = {"deliveries": deliveries, "events": len(keys), "processes": processes}
    return counted | {f"answers {name}": number for name, number in sorted(answers.items())} | {
        "killed": kinds["SIGKILL"], "closed": kinds["SIGTERM"], **found
    }  # fmt: skip


def main(
    deliveries: int = 10_000, processes: int = 2, kind: str = "sqlite", seed: int = 1
) -> int:
    """Run it, print what was found, and return 1 if a promise was broken."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        address = str(Path(name) / "events.db")
        if kind == "postgres":
            from tests.support.database import database

            address = database().address
        found = asyncio.run(
            soak(
                address,
                Path(name),
                deliveries=deliveries,
                processes=processes,
                seed=seed,
                ends=3,
            )
        )
    print(json.dumps({"store": kind} | found))  # noqa: T201 - a command
    return 1 if found["lost"] or found["forged"] or found["at once"] else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["receive"]:
        asyncio.run(receive(*sys.argv[2:4]))
    else:
        numbers = [int(each) if each.isdigit() else each for each in sys.argv[1:]]
        sys.exit(main(*numbers))  # type: ignore[arg-type]
