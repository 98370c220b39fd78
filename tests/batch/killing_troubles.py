"""What goes wrong around a batch besides kills: outages, dead tokens, refusals and retries."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from invsvc_async import Verdict
from invsvc_async.simulator import Faults
from tests.batch.child import STOPPED, begin
from tests.batch.writing import opened

if TYPE_CHECKING:
    import random
    from asyncio.subprocess import Process
    from pathlib import Path

    from invsvc_async.simulator import Simulator
    from tests.support.door import Door

FAILED = (Verdict.NOT_APPLIED, Verdict.REFUSED, Verdict.UNKNOWN)


class Moved(NamedTuple):
    """A forced retry, which made a write the newest."""

    at: float
    key: str
    before: int  # its place until then


class Runs:
    """Starts the processes of one batch, which is killed; nothing else is wrong."""

    longest = 0.5  # s, after its first request, until a process is killed
    ends: tuple[int, ...] = (0,)  # exit codes of those that end by themselves

    def __init__(self, service: Simulator, journal: Path | str, file: Path) -> None:
        self._service, self._journal, self._file = service, journal, file

    async def begin(self, *, works: bool = False, last: bool = False) -> Process:
        """Start a process that runs the batch, or works beside it; no other comes after the *last* one."""
        where = self._service.base_url, self._journal, "-" if works else self._file
        return await begin(*where, key=self._service.api_key)

    async def end(self) -> None:
        """Run the batch to its end."""
        assert await (await self.begin(last=True)).wait() == 0, "the batch failed"

    async def force(self) -> None:
        """Retry something, and make it the newest, before a process begins."""

    def stir(self) -> None:
        """Make something happen if nothing does."""

    async def calm(self) -> None:
        """Wait until nothing is wrong."""


class Troubles(Runs):
    """Brings troubles over one batch, too."""

    longest = 1.0
    ends = (0, STOPPED)

    def __init__(
        self,
        service: Simulator,
        door: Door,
        journal: Path | str,
        file: Path,
        chance: random.Random,
    ) -> None:
        super().__init__(service, journal, file)
        self._door, self._chance = door, chance
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
        self, *, works: bool = False, last: bool = False, failed: bool = False
    ) -> Process:
        """Start one, which perhaps retries writes first; all *failed* ones if asked."""
        retry: dict[str, object] = {"failed": True} if failed else {}
        if not (works or last) and self._chance.random() < 0.4:
            retry = await self._choose_retry()
        where = self._door.base_url, self._journal, "-" if works else self._file
        asks = last or self._chance.random() < 0.5
        files = {"token": str(self._token), "told": str(self._told)}
        return await begin(*where, asks=asks, retry=retry, attempt=1.0, **files)

    async def end(self) -> None:
        """Run the batch to its end without troubles, and once more after a retry of what failed."""
        await self.calm()
        for failed in (False, True):
            child = await self.begin(last=True, failed=failed)
            assert await child.wait() == 0, "the batch failed"

    async def _choose_retry(self) -> dict[str, object]:
        self.count["retries"] += 1
        if self._chance.random() < 0.5:
            return {"failed": True}
        return {"failed": True, "keys": await self._some_failed(50)}

    async def _some_failed(self, most: int) -> list[str]:
        async with opened(self._journal) as entries:
            failed = [
                entry.key
                for each in FAILED
                for entry in await entries.done(each, 0, 1000)
            ]
        return self._chance.sample(failed, min(len(failed), most))

    async def force(self) -> None:
        """Retry a few failed writes, and make them the newest. No process that has the file may run."""
        if self._chance.random() < 0.3 and (keys := await self._some_failed(5)):
            at = time.monotonic()
            async with opened(self._journal) as entries:
                failed = [
                    entry
                    for each in FAILED
                    for entry in await entries.done(each, 0, 1_000_000)
                ]
                await entries.do_again(keys, at_end=True)
            self.moved += [
                Moved(at, entry.key, entry.place)
                for entry in failed
                if entry.key in keys
            ]
            self.count["forced"] += len(keys)

    # --- troubles

    def stir(self) -> None:
        """Make something happen if nothing does."""
        if self._happening is None or self._happening.done():
            kinds = (
                self._outage,
                self._errors,
                self._dead_token,
                self._refusals,
                self._nothing,
            )
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
        self._service.faults = Faults(
            rate=1.0, kinds=("503", "500"), phases=("before", "after")
        )
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
