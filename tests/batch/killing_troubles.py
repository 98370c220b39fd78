"""What goes wrong around a batch besides kills: outages, dead tokens, refusals and retries."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from invsvc_async import Verdict
from invsvc_async.batch.entries import entries_of
from invsvc_async.simulator import Faults

if TYPE_CHECKING:
    import random
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator
    from pathlib import Path

    from invsvc_async.batch.entries import BatchEntries
    from invsvc_async.simulator import Simulator
    from tests.support.door import Door

FAILED = (Verdict.NOT_APPLIED, Verdict.REFUSED, Verdict.UNKNOWN)


class Moved(NamedTuple):
    """A forced retry, which made a write the newest."""

    at: float
    key: str
    before: int  # its place until then


class Troubles:
    """Brings troubles over one batch, and starts its processes."""

    def __init__(
        self, service: Simulator, door: Door, journal: Path | str, file: Path, chance: random.Random
    ) -> None:
        self._service, self._door, self._journal, self._file = service, door, journal, file
        self._chance = chance
        self._faults = service.faults
        self._token, self._told = file.with_name("token"), file.with_name("told.jsonl")
        self._live = service.api_key
        self._token.write_text(self._live)
        self._told.touch()
        self._happening: asyncio.Task[None] | None = None
        self.moved: list[Moved] = []
        self.count: Counter[str] = Counter()

    # --- processes

    async def begin(
        self, *, kind: str = "", works: bool = False, retries: bool = True, failed: bool = False
    ) -> Process:
        """Start a process that runs the batch, and perhaps retries writes first; all *failed* ones if asked."""
        if failed:
            retry = json.dumps({"failed": True})
        elif retries and not works and self._chance.random() < 0.4:
            retry = json.dumps(await self._choose_retry())
        else:
            retry = ""
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.batch.killing_child", self._door.base_url, str(self._token),
            kind or self._chance.choice(["provider", "fixed"]), str(self._journal),
            "-" if works else str(self._file), str(self._told), *filter(None, [retry]),
        )  # fmt: skip

    async def _choose_retry(self) -> dict[str, object]:
        self.count["retries"] += 1
        if self._chance.random() < 0.5:
            return {"failed": True}
        return {"failed": True, "keys": await self._some_failed(50)}

    async def _some_failed(self, most: int) -> list[str]:
        async with self._entries() as entries:
            failed = [entry.key for each in FAILED for entry in await entries.done(each, 0, 1000)]
        return self._chance.sample(failed, min(len(failed), most))

    @asynccontextmanager
    async def _entries(self) -> AsyncIterator[BatchEntries]:
        entries = entries_of(self._journal)
        await entries.open()
        try:
            yield entries
        finally:
            await entries.aclose()

    async def force(self) -> None:
        """Retry a few failed writes, and make them the newest. No process that has the file may run."""
        if self._chance.random() < 0.3 and (keys := await self._some_failed(5)):
            at = time.monotonic()
            async with self._entries() as entries:
                failed = [entry for each in FAILED for entry in await entries.done(each, 0, 1_000_000)]
                await entries.do_again(keys, newest=True)
            self.moved += [Moved(at, entry.key, entry.place) for entry in failed if entry.key in keys]
            self.count["forced"] += len(keys)

    # --- troubles

    def stir(self) -> None:
        """Make something happen if nothing does."""
        if self._happening is None or self._happening.done():
            kinds = (self._outage, self._errors, self._dead_token, self._refusals, self._nothing)
            self._happening = asyncio.create_task(self._chance.choice(kinds)())

    async def calm(self) -> None:
        """Wait until nothing is wrong."""
        if self._happening is not None:
            await self._happening

    async def _nothing(self) -> None:
        """Leave it at kills."""

    async def _outage(self) -> None:
        self.count["outages"] += 1
        await self._door.shut()
        await asyncio.sleep(self._chance.uniform(0.2, 1.5))
        await self._door.open()

    async def _errors(self) -> None:
        self.count["5xx in a row"] += 1
        self._service.faults = Faults(rate=1.0, kinds=("503", "500"), phases=("before", "after"))
        await asyncio.sleep(self._chance.uniform(0.2, 1.0))
        self._service.faults = self._faults

    async def _dead_token(self) -> None:
        self.count["dead tokens"] += 1
        self._service.expire(self._live)
        await asyncio.sleep(self._chance.uniform(0.0, 1.0))
        self._live = self._service.issue_key()
        fresh = self._token.with_name("fresh")
        fresh.write_text(self._live)
        fresh.replace(self._token)

    async def _refusals(self) -> None:
        self.count["refused"] += 10
        self._service.script("webhooks.update", *["403"] * 8)
        self._service.script("webhooks.delete", *["403"] * 2)

    # --- what was given

    def told(self) -> list[tuple[str, str, float]]:
        """Return (key, verdict, when) of the results that processes were given."""
        lines = self._told.read_text().splitlines()
        return [tuple(json.loads(line)) for line in lines if line.endswith("]")]
