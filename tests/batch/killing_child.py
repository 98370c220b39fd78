"""
Run a batch in a process that is there to be killed, and write down each result that is given.

    python -m tests.batch.killing_child BASE_URL TOKEN_FILE provider|fixed JOURNAL FILE TOLD_FILE [RETRY]

FILE "-" is a worker, which waits for work. RETRY are the arguments of ``Batch.retry`` as JSON. A run that stops
because its token is refused ends with the exit code 9.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from invsvc_async import ApiKey, BatchStoppedError, Client, Timeouts, TokenProvider
from invsvc_async.batch import Batch
from tests.batch.child import POLICY

STOPPED = 9


def credential_of(file: Path, kind: str):
    """Make the credential: the token in *file*, or whatever is in it when a token is asked for."""

    async def read():
        return file.read_text()  # noqa: ASYNC240 - a few bytes

    return TokenProvider(read, kind="api_key") if kind == "provider" else ApiKey(file.read_text())


async def main(url: str, token: str, kind: str, journal: str, file: str, told: str, retry: str = "") -> int:
    given = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    async with (
        Client(
            url, credential_of(Path(token), kind), reconcile=POLICY, timeout=Timeouts(attempt=1.0),
            max_concurrency=64,
        ) as client,
        Batch.open(
            journal, client, concurrency=24, same_mode=True, on_secret=lambda _key, _hook: None
        ) as batch,
    ):  # fmt: skip
        if retry:
            await batch.retry(**json.loads(retry))
        try:
            async for result in batch.work() if file == "-" else batch.run(file):
                line = json.dumps([result.key, str(result.verdict), time.monotonic()])
                os.write(given, f"{line}\n".encode())
        except BatchStoppedError:
            return STOPPED
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
