"""
Run a batch in a process that is there to be killed.

    python -m tests.batch.child BASE_URL JOURNAL FILE HOW

FILE "-" is a worker, which waits for work; without a FILE, the input has twenty creates and then no end.  HOW is JSON
of :class:`How`.  A run that stops because its token is refused ends with the exit code 9.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async import (
    ApiKey,
    BatchStoppedError,
    Client,
    ReconcilePolicy,
    Timeouts,
    TokenProvider,
)
from invsvc_async.batch import Batch
from invsvc_async.batch.item import Item, ItemOptions
from tests.batch.writing import SECRETS, creates
from tests.support.children import started

if TYPE_CHECKING:
    from asyncio.subprocess import Process

STOPPED = 9
AT_ONCE = 24  # writes of one process
TRANSITIONS = {  # name: (class, method, before it or after)
    "before it is stored": (Item, "sending", "before"),
    "stored and not sent": (Item, "sending", "after"),
    "answered": (ItemOptions, "send", "after"),
    "before it is done": (Item, "settled", "before"),
    "done": (Item, "settled", "after"),
}
# Late effects of the service land within 0.15 s: well inside the windows, on a busy machine too.
POLICY = ReconcilePolicy(settle_after_error=0.5, settle_after_loss=0.6, deadline=20.0)


@attrs.frozen(kw_only=True)
class How:
    """How a process runs a batch."""

    key: str = ""
    token: str = ""  # a file that has the key
    asks: bool = False  # for the key in that file, whenever it needs one
    # by SIGKILL, the so many-th time that it comes to a transition
    dies: tuple[str, int] | None = None
    # arguments of ``Batch.retry``, which is called first
    retry: dict[str, Any] | None = None
    told: str = ""  # a file to which each result is written
    # the key of each result; from the 100th on, it takes one in 20 ms
    prints: bool = False
    # s: an answer that is only slow, on a busy machine, is no lost answer
    attempt: float = 3.0


async def begin(url: str, journal: Path | str, file: Path | str, **how: Any) -> Process:
    """Start such a process."""
    return await started("tests.batch.child", url, journal, file, json.dumps(how))


def die_at(transition: str, number: int) -> None:
    """Kill this process with SIGKILL, the *number*-th time that it comes to *transition*."""
    cls, name, when = TRANSITIONS[transition]
    original, left = getattr(cls, name), iter(range(number - 1, -1, -1))

    @wraps(original)
    async def dying(*arguments, **named):
        last = when == "before" and next(left, 1) == 0
        result = None if last else await original(*arguments, **named)
        if last or (when == "after" and next(left, 1) == 0):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(cls, name, dying)


def credential_of(how: How):
    """Make the credential: a key, or a provider that reads the file whenever it is asked."""

    async def read():
        return Path(how.token).read_text()  # noqa: ASYNC240 - a few bytes

    return (
        TokenProvider(read, kind="api_key")
        if how.asks
        else ApiKey(how.key or Path(how.token).read_text())
    )


async def endless(client):
    """Yield twenty writes, then wait."""
    for write in creates(client, 20):
        yield write
    await asyncio.Event().wait()


async def main(url: str, journal: str, file: str, settings: str) -> int:
    how, count = How(**json.loads(settings)), 0
    told = (
        os.open(how.told, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        if how.told
        else 0
    )
    if how.dies:
        die_at(*how.dies)
    times = {
        "reconcile": POLICY,
        "timeout": Timeouts(attempt=how.attempt),
        "max_concurrency": 64,
    }
    async with (
        Client(url, credential_of(how), **times) as client,
        Batch.open(
            journal, client, concurrency=AT_ONCE, same_mode=True, **SECRETS
        ) as batch,
    ):
        if how.retry:
            await batch.retry(**how.retry)
        try:
            async for result in (
                batch.work() if file == "-" else batch.run(file or endless(client))
            ):
                if told:
                    line = json.dumps(
                        [result.key, str(result.verdict), time.monotonic()]
                    )
                    os.write(told, f"{line}\n".encode())
                if how.prints:
                    # sleeps: as a consumer that is slow
                    await asyncio.sleep(0.02 * (count >= 100))
                    print(result.key, flush=True)  # noqa: T201 - read by the test
                    count += 1
        except BatchStoppedError:
            return STOPPED
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
