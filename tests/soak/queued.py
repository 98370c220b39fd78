"""
End programs while writes wait, run them again in another order or all at once, and compare them with the ledger.

    python -m tests.soak.queued [TRIALS [SEED [USE …]]]

Each trial has 2 to 50 writes to one to three things, under keys, in a batch or in an outbox, in a file or in PostgreSQL.
Its processes are killed, stopped by SIGTERM (they cancel, close, or meet an exception), and run again, with other wall
clocks, until each write has a verdict.  Then each took effect once, in the order of the first claims, or was refused or
overtaken by one that was sent.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import attrs
import msgspec

from invsvc_async.simulator import Faults, Simulator
from tests.soak.queued_child import OVERTAKEN, Task
from tests.support.children import gone_after
from tests.support.database import connected, database
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

FAULTS = Faults(rate=0.06, reads=0.02, late_up_to=0.15, hang=0.3)
NONE = Faults()
CLOCKS = (
    1.0,
    -1.0,
    60.0,
    660.0,
    -660.0,
    3_700.0,
    -3_700.0,
    86_400.0,
    8_640_000.0,
    -8_640_000.0,
)  # s
PATIENCE = 600.0  # s: a process that has not ended by then hangs
AT_ONCE = 3  # trials
SENDING = 1  # of an entry's states
USES = ("keys", "batch", "outbox")


class Told(NamedTuple):
    """What a process was told of a write, and when (s of the monotonic clock)."""

    verdict: str
    cause: str | None
    at: float


@attrs.define
class Trial:
    """One program, and what became of it."""

    use: Literal["keys", "batch", "outbox"]
    is_shared: bool
    seed: int
    writes: list[tuple[str, str, str]]
    told: dict[str, list[Told]] = attrs.field(factory=dict)  # by key
    places: dict[str, int] = attrs.field(factory=dict)
    may_have_sent: dict[str, float] = attrs.field(
        factory=dict
    )  # what was being sent when its process ended: when
    # keys in the journal when the first process had ended
    first: list[str] = attrs.field(factory=list)
    order: list[str] = attrs.field(factory=list)  # of the first process
    ends: list[str] = attrs.field(factory=list)
    wrong: list[str] = attrs.field(factory=list)

    def __str__(self) -> str:
        journal = "PostgreSQL" if self.is_shared else "file"
        return f"seed {self.seed}: {self.use} in a {journal}, {len(self.writes)} writes, {', '.join(self.ends)}"


async def trial(seed: int, uses: tuple[str, ...] = USES) -> Trial:
    """Run one program to its end, over and over."""
    chance = random.Random(seed)
    faults = chance.choice((NONE, FAULTS))
    async with Simulator(
        seed=seed, faults=faults, latency=chance.choice((0.01, 0.1, 0.3))
    ) as service:
        made = _made(chance, service, seed, uses)
        async with _place(made) as (address, rows):
            for turn in range(chance.choice((1, 1, 2, 3))):
                await _ended_early(chance, service, made, address, turn)
                await _note(made, rows, turn)
                if made.is_shared and chance.random() < 0.3:
                    await _shift(rows, chance.choice(CLOCKS))
            await _run_to_its_end(chance, service, made, address)
            await service.settled()
            made.places = {key: place for key, _, place in await rows.entries()}
            made.wrong += _judged(made, service)
    return made


def _made(
    chance: random.Random, service: Simulator, seed: int, uses: tuple[str, ...]
) -> Trial:
    kinds = chance.choices(("journey", "webhook"), k=chance.choice((1, 1, 2, 3)))
    things = [(kind, getattr(service, f"seed_{kind}")().id) for kind in kinds]
    many = chance.choice((2, 3, 4, 5, 8, 12, 20, 50))
    writes = [(f"k{number}", *chance.choice(things)) for number in range(many)]
    use: Any = chance.choice(uses)
    return Trial(use, chance.random() < 0.6, seed, writes)


# --- its processes


def _task(
    chance: random.Random,
    service: Simulator,
    made: Trial,
    address: str,
    *,
    is_last: bool,
) -> Task:
    writes, share = [*made.writes], chance.random()
    if made.order and share < 0.3:
        writes.reverse()
    elif made.order and share < 0.6:
        chance.shuffle(writes)
    clock = []
    if chance.random() < 0.4:
        clock = sorted(
            (chance.choice((0.0, 0.0, chance.uniform(0.0, 3.0))), chance.choice(CLOCKS))
            for _ in range(2)
        )
    return Task(
        use=made.use,
        url=service.base_url,
        token=service.api_key,
        address=address,
        writes=writes,
        how=chance.choice(("one by one", "at once", "at once", "apart")),
        on_term=chance.choice(("cancel", "aclose", "raise")),
        clock=clock,
        is_last=is_last,
    )


async def _started(task: Task) -> asyncio.subprocess.Process:
    command = [
        sys.executable,
        "-m",
        "tests.soak.queued_child",
        msgspec.json.encode(task).decode(),
    ]
    quiet = asyncio.subprocess.DEVNULL
    return await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=quiet
    )


async def _ended_early(
    chance: random.Random, service: Simulator, made: Trial, address: str, turn: int
) -> None:
    """Run it once, and end it some time after its first request."""
    task = _task(chance, service, made, address, is_last=False)
    if turn == 0:
        made.order = [key for key, _, _ in task.writes]
    before = service.arrivals()
    async with gone_after(await _started(task)) as child:
        reading = asyncio.create_task(_read(made, child))
        await until(lambda: service.arrivals() > before or child.returncode is not None)
        await asyncio.sleep(
            chance.choice((0.0, chance.uniform(0.0, 0.5), chance.uniform(0.0, 2.0)))
        )
        how = chance.choice(("kill", "kill", task.on_term))
        made.ends.append(how)
        with suppress(ProcessLookupError):
            child.send_signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
        await _until_gone(made, child, "does not end")
        await reading


async def _run_to_its_end(
    chance: random.Random, service: Simulator, made: Trial, address: str
) -> None:
    task = _task(chance, service, made, address, is_last=True)
    async with gone_after(await _started(task)) as child:
        reading = asyncio.create_task(_read(made, child))
        await _until_gone(made, child, "never has all verdicts")
        await reading
        if child.returncode:
            made.wrong.append(f"the last process failed: {child.returncode}")


async def _until_gone(
    made: Trial, child: asyncio.subprocess.Process, what: str
) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            await child.wait()
    except TimeoutError:
        made.wrong.append(f"a process {what} in {PATIENCE:.0f} s")
        child.kill()


async def _read(made: Trial, child: asyncio.subprocess.Process) -> None:
    assert child.stdout is not None
    async for line in child.stdout:
        with suppress(ValueError):  # cut by a kill
            key, verdict, cause, _, at = json.loads(line)
            made.told.setdefault(key, []).append(Told(verdict, cause, at))


# --- its journal


@attrs.frozen
class FileRows:
    """The entries in a file."""

    path: Path

    async def entries(self) -> list[tuple[str, int, int]]:
        """Return keys, states and places."""
        path = next(
            iter(sorted(self.path.parent.glob(f"{self.path.name}-outbox-????????"))),
            self.path,
        )
        with closing(sqlite3.connect(path)) as file:
            if not file.execute(
                "SELECT 1 FROM sqlite_master WHERE name = 'entries'"
            ).fetchone():
                return []
            rows = file.execute("SELECT key, state, place FROM entries").fetchall()
        return [(key.rpartition(" ")[2], state, place) for key, state, place in rows]


@attrs.frozen
class SharedRows:
    """The entries in a schema of PostgreSQL that has *name* in its name."""

    name: str

    async def _schema(self, connection: Any) -> str | None:  # Any: asyncpg's
        text = "SELECT nspname FROM pg_namespace WHERE nspname LIKE $1"
        return await connection.fetchval(text, f"invoicing%\\_{self.name}%")

    async def entries(self) -> list[tuple[str, int, int]]:
        """Return keys, states and places."""
        async with connected() as connection:
            if (schema := await self._schema(connection)) is None:
                return []
            rows = await connection.fetch(
                f"SELECT key, state, place FROM {schema}.entries"
            )
        return [(key.rpartition(" ")[2], state, place) for key, state, place in rows]

    async def shift(self, by: float) -> None:
        """Let all that is stored be as if the clock of the database had been ahead by so many seconds."""
        async with connected() as connection:
            if (schema := await self._schema(connection)) is not None:
                await connection.execute(
                    f"UPDATE {schema}.members SET seen = seen + {by}, begun = begun + {by};"
                    f"UPDATE {schema}.entries SET done_at = done_at + {round(by * 1000)}"
                )


async def _shift(rows: FileRows | SharedRows, by: float) -> None:
    if isinstance(rows, SharedRows):
        await rows.shift(by)


@asynccontextmanager
async def _place(made: Trial) -> AsyncIterator[tuple[str, FileRows | SharedRows]]:
    if made.is_shared:
        name = f"q{made.seed}x{time.time_ns() % 10**9}"
        kind = "journal" if made.use == "keys" else made.use
        yield database().at(**{kind: name, "silence": 1}), SharedRows(name)
        return
    with tempfile.TemporaryDirectory(prefix="queued") as folder:
        path = Path(folder) / "run.db"
        yield str(path), FileRows(path)


async def _note(made: Trial, rows: FileRows | SharedRows, turn: int) -> None:
    """Note what stands in the journal after the end of a process."""
    found = await rows.entries()
    for key, state, _ in found:
        if state == SENDING:
            made.may_have_sent.setdefault(key, time.monotonic())
    if turn == 0:
        made.first = [key for key, _, _ in found]


# --- judged


def _judged(made: Trial, service: Simulator) -> Iterator[str]:
    effects = sorted(
        service.ledger.effects(), key=lambda entry: entry.applied_at or 0.0
    )
    came = [(_key(entry.body), entry.path_id) for entry in effects]
    counts, things = (
        Counter(key for key, _ in came),
        {key: thing for key, _, thing in made.writes},
    )
    for key in things:
        if key not in made.told:
            yield f"{key}: has no verdict"
            continue
        verdict, cause, _ = made.told[key][-1]
        found = [
            (counts[key] > 1, f"{counts[key]} effects"),
            (
                verdict == "applied" and not counts[key],
                "said to be applied, and is not",
            ),
            (verdict == "superseded", "superseded, and nobody else was there"),
            (
                verdict in ("not applied", "refused") and counts[key] > 0,
                f"said to be {verdict}, and took effect",
            ),
            (
                verdict == "not applied" and cause not in OVERTAKEN,
                f"not applied at last: {cause}",
            ),
        ]
        yield from (f"{key}: {why}" for is_so, why in found if is_so)
    yield from _overtaken(made, service, things)
    for thing in set(things.values()):
        places = [
            made.places[key]
            for key, where in came
            if where == thing and key in made.places
        ]
        if places != sorted(places):
            yield f"{thing}: its effects came as {places}"
        begun = [
            made.places[key]
            for key in made.order
            if things[key] == thing and key in made.first
        ]
        if begun != sorted(begun):
            yield f"{thing}: its writes were begun in an order, and claimed as {begun}"


def _overtaken(
    made: Trial, service: Simulator, things: dict[str, str]
) -> Iterator[str]:
    """Yield what is told as overtaken before a newer write to its thing had arrived, or may have."""
    arrived = dict(made.may_have_sent)
    for entry in service.ledger.entries:
        key = _key(entry.body)
        arrived[key] = min(arrived.get(key, entry.received_at), entry.received_at)
    for key, said in made.told.items():
        place = made.places.get(key, 0)
        newer = [
            each
            for each in things
            if things[each] == things[key] and made.places.get(each, 0) > place
        ]
        for told in said:
            if told.cause in OVERTAKEN and not any(
                arrived.get(each, told.at + 1.0) <= told.at for each in newer
            ):
                yield f"{key}: said to be overtaken, and nothing newer had been sent"
                break


def _key(body: dict[str, Any]) -> str:
    return str(body.get("name") or body.get("description"))


async def main(trials: int = 30, seed: int = 1, *uses: str) -> bool:
    """Run trials, a few at once, print what came of them, and return whether all is well."""
    gate, verdicts, begun = asyncio.Semaphore(AT_ONCE), Counter[str](), time.monotonic()

    async def one(each: int) -> Trial:
        async with gate:
            made = await trial(each, uses or USES)
        for words in made.wrong:
            print(f"{made}: {words}", flush=True)  # noqa: T201 - a session's output
        return made

    all_made = await asyncio.gather(*(one(each) for each in range(seed, seed + trials)))
    for made in all_made:
        verdicts.update(said[-1].verdict for said in made.told.values())
    wrong, ends = (
        sum(bool(made.wrong) for made in all_made),
        sum(len(made.ends) for made in all_made),
    )
    print(  # noqa: T201 - a session's output
        f"{trials} programs, {ends} ends with writes waiting, {time.monotonic() - begun:.0f} s: {dict(verdicts)}; "
        f"{wrong} programs with something wrong"
    )
    return not wrong


if __name__ == "__main__":
    sys.exit(not asyncio.run(main(*map(int, sys.argv[1:3]), *sys.argv[3:])))
