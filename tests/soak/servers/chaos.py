"""
Trouble for the workers of a server while events come, and what became of each event.

First come recycles, SIGHUP and restarts of the database, none of which may begin an event twice; then workers
are killed, too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import attrs

from tests.soak.servers.sending import Sent, send_all
from tests.soak.servers.setups import Server, kill

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable
    from pathlib import Path

    from tests.support.database import Database

_PAUSE = (0.5, 2.0)  # s between two troubles, while events are acknowledged
_SOME = 10  # events between two troubles, at least
_RECEIVES_WITHIN = 120.0  # s
_HANDLED_WITHIN = 180.0  # s: a lease of 15 s, which a kill leaves, and a busy machine


@attrs.frozen(kw_only=True)
class Found:
    """What became of the events of one part."""

    sent: int
    acknowledged: int  # answered 2xx
    unanswered: int  # requests without an answer
    lost: int  # acknowledged, but never handled
    again: int  # begun twice although no kill had cut them off
    after_kill: int  # begun again after a kill
    strange: int  # begun, but never sent
    troubles: Counter[str]


@attrs.frozen(kw_only=True)
class Note:
    """One line that a handler has written."""

    word: str
    key: str
    pid: int


def notes_in(path: Path) -> list[Note]:
    """Return the lines of the handlers; the last may be half written."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    split = [line.split() for line in lines]
    return [Note(word=word, key=key, pid=int(pid)) for word, key, pid in split]


def judge(
    notes: Iterable[Note], sent: Sent, killed: set[int], troubles: Counter[str]
) -> Found:
    """Count what was lost, and what was begun twice; *killed*: the processes that were killed."""
    begins: dict[str, list[int]] = {}
    ended: set[str] = set()
    for each in notes:
        if each.word == "begin":
            begins.setdefault(each.key, []).append(each.pid)
        if each.word == "end":
            ended.add(each.key)
    again = 0
    after_kill = 0
    for pids in begins.values():
        cut_off = sum(pid in killed for pid in pids[:-1])
        after_kill += cut_off
        again += len(pids) - 1 - cut_off
    return Found(
        sent=len(sent.sent),
        acknowledged=len(sent.acknowledged),
        unanswered=sent.answers[0],
        lost=len(sent.acknowledged - ended),
        again=again,
        after_kill=after_kill,
        strange=len(begins.keys() - sent.sent),
        troubles=troubles,
    )


class Part:
    """One part of the chaos: events that are sent to *server*, and its troubles."""

    def __init__(
        self, server: Server, database: Database, notes: Path, chance: random.Random
    ) -> None:
        self._server = server
        self._database = database
        self._notes = notes
        self._chance = chance
        self._sent = Sent()
        self._killed: set[int] = set()
        self._troubles: Counter[str] = Counter()

    async def run(self, *, first: int, kinds: list[str], troubles: int) -> Found:
        """Send events, the first of that number, while so many *troubles* of *kinds* come in turn; judge."""
        before = len(notes_in(self._notes))
        starts = self._server.starts
        sending = asyncio.create_task(
            send_all(self._server.port, first, self._sent, self._chance)
        )
        for number in range(troubles):
            await self._until_receiving()
            await asyncio.sleep(self._chance.uniform(*_PAUSE))
            await self._make(kinds[number % len(kinds)])
        await self._until_receiving()
        self._sent.is_over = True
        await sending
        await self._until_handled()
        notes = notes_in(self._notes)[before:]
        self._troubles["workers"] = len(
            {each.pid for each in notes if each.word == "worker"}
        )
        self._troubles["starts"] = self._server.starts - starts
        return judge(notes, self._sent, self._killed, self._troubles)

    async def _make(self, kind: str) -> None:
        match kind:
            case "renew":
                self._server.renew()
            case "database":
                await self._database.restart()
            case "kill":
                workers = await self._workers()
                victim = self._chance.choice(workers)
                self._killed |= (
                    {*workers} if self._server.set_up.fails_as_one else {victim}
                )
                kill(victim)
        self._troubles[kind] += 1

    async def _workers(self) -> list[int]:
        """Return the processes that receive; wait until there is one."""
        async with asyncio.timeout(_RECEIVES_WITHIN):
            while True:
                noted = {each.pid for each in notes_in(self._notes)}
                if workers := self._server.workers(noted):
                    return workers
                await asyncio.sleep(0.2)

    async def _until_receiving(self) -> None:
        """Wait until some events are acknowledged that were not before."""
        before = len(self._sent.acknowledged)
        async with asyncio.timeout(_RECEIVES_WITHIN):
            while len(self._sent.acknowledged) < before + _SOME:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.05)

    async def _until_handled(self) -> None:
        """Wait until each acknowledged event is handled, or for as long as that may take."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _HANDLED_WITHIN
        while loop.time() < until:
            ended = {each.key for each in notes_in(self._notes) if each.word == "end"}
            if not self._sent.acknowledged - ended:
                break
            await asyncio.sleep(0.5)
        await asyncio.sleep(2.0)  # for what is begun again
