"""
Write a large table on engines whose workers are killed, and compare what came of each row with the ledger.

    python -m tests.soak.tables [ENGINE [ROWS [KILLS [SEED]]]]

Each engine has two processes that write, 50 rows at once.  First a calm service that answers after 50 ms: beside the
engine a batch on two processes, and the engine with plain aiohttp, twice, the second time in the opposite order.
Then a service that loses answers and commits late, while processes are killed; a batch is killed as often.  CPU times
are those of all processes of the engine, without PostgreSQL's, which has a column of its own.  One that is not
installed here is run in the environment of the folder ``$ENGINES`` that has it, such as ``.nox``.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import attrs

from benchmarks.service import service as calm_service
from invsvc_async.durable.entry import State
from invsvc_async.engines import presence
from invsvc_async.simulator import Faults
from invsvc_async.testing import serving
from tests.soak.engines import elsewhere
from tests.soak.table_programs import BATCH_WORKERS
from tests.support.database import connected, database, schema_of
from tests.support.processes import below, command_of, in_session, kill_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from invsvc_async.simulator import Simulator

ROWS: Final = 20_000
KILLS: Final = 10
THINGS: Final = 2_000
CREATE_EVERY: Final = 10  # rows; the others are updates
DELAY: Final = 0.05  # s, of the calm service
FAULTS: Final = Faults(rate=0.05, reads=0.01, late_up_to=0.2, hang=0.3)
LONG: Final = 1_200.0  # s that nothing takes
PACKAGES: Final = {
    "spark": "pyspark",
    "ray": "ray",
    "dask": "distributed",
}
NAMES: Final = {
    "spark": "Spark, local[2]", "ray": "Ray, two actors",
    "dask": "Dask, two processes",
}  # fmt: skip
HEAD: Final = (
    "engine", "rows a second, calm", "against Batch", "against plain aiohttp", "ms CPU a row", "of Batch", "of plain",
    "of PostgreSQL", "rows a second, killed", "against Batch, killed", "kills", "lost answers", "applied", "unknown",
    "twice", "out of order", "wrong", "no result", "from a kill to the verdicts of what was under way: median", "longest",
    "of it after the engine's next run of the part: median", "its longest",
)  # fmt: skip
_TICK: Final = os.sysconf("SC_CLK_TCK")


class Meter(threading.Thread):
    """Adds up the CPU time of processes: those that *members* returns now and then."""

    def __init__(self, members: Callable[[], list[int]]) -> None:
        super().__init__(daemon=True)
        self._members = members
        self._first: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self._ended = threading.Event()

    def run(self) -> None:
        """Look until :meth:`end`."""
        for pid in self._members():  # what they have used until now does not count
            self._first[pid] = _cpu_of(pid)
        while not self._ended.wait(0.25):
            self._look()

    def end(self) -> float:
        """Return the seconds."""
        self._look()
        self._ended.set()
        self.join()
        return sum(self._last.values()) - sum(
            self._first.get(pid, 0.0) for pid in self._last
        )

    def _look(self) -> None:
        for pid in self._members():
            self._last[pid] = max(_cpu_of(pid), self._last.get(pid, 0.0))


def _cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process; 0 if it has ended."""
    with suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK
    return 0.0


@attrs.frozen
class Kill:
    """When a process was killed, and the keys of what was being sent then."""

    at: float
    keys: set[str]


@attrs.frozen
class Wait:
    """
    From a kill to the first verdict of each row that was under way, at most, in seconds.

    ``own`` is the part of it after the engine gave the row to the worker that found the verdict, at most.
    """

    whole: float
    own: float


class Killer(threading.Thread):
    """Kills a process that *victims* finds, each time another part of the rows has had its effect."""

    def __init__(
        self,
        service: Simulator,
        rows: int,
        kills: int,
        victims: Callable[[], list[int]],
        mark: str,
        seed: int,
    ) -> None:
        super().__init__(daemon=True)
        self._service, self._victims, self._mark = service, victims, mark
        self._at = [rows * (number + 1) // (kills + 1) for number in range(kills)]
        self._chance = random.Random(seed)
        self.ended = threading.Event()
        self.killed: list[Kill] = []

    def run(self) -> None:
        """Kill until all kills are made, or the run has ended."""
        for effects in self._at:
            while len(self._service.ledger.entries) < effects:
                if self.ended.wait(0.02):
                    return
            while not (victims := self._victims()):
                if self.ended.wait(0.02):
                    return
            being_sent = f"state = {State.SENDING:d}"
            under_way = asyncio.run(entries_of(self._mark, being_sent))
            with suppress(ProcessLookupError):
                os.kill(self._chance.choice(victims), signal.SIGKILL)
                self.killed.append(Kill(time.time(), {*under_way}))


class Watcher(threading.Thread):
    """
    Notes when each row that was under way at a kill had its first verdict after it.

    The store has only the time of its last verdict: each run of its part settles one that is unknown again.
    """

    def __init__(self, killer: Killer, mark: str) -> None:
        super().__init__(daemon=True)
        self._killer, self._mark = killer, mark
        self.first: dict[tuple[float, str], float] = {}  # by the kill and the key

    def run(self) -> None:
        """Look until the run has ended, and once after it."""
        asyncio.run(self._watch())

    async def _watch(self) -> None:
        async with connected() as connection:
            while not self._killer.ended.is_set():
                await self._look(connection)
                await asyncio.sleep(0.2)
            await self._look(connection)

    async def _look(self, connection: Any) -> None:
        waiting = [
            (kill.at, key)
            for kill in [*self._killer.killed]
            for key in kill.keys
            if (kill.at, key) not in self.first
        ]
        if not waiting:
            return
        schema = await schema_of(connection, _kind(self._mark), self._mark)
        text = f"SELECT key FROM {schema}.entries WHERE key = ANY($1) AND done_at IS NOT NULL"
        found = await connection.fetch(text, [key for _, key in waiting])
        done = {row["key"] for row in found}
        now = time.time()
        self.first.update({each: now for each in waiting if each[1] in done})


@attrs.frozen(kw_only=True)
class Run:
    """What one run took, and its results by key."""

    seconds: float
    cpu: float
    database_cpu: float
    rows: int
    results: dict[str, str]
    waits: list[Wait] = attrs.field(factory=list)  # of each kill

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds

    @property
    def cpu_of_a_row(self) -> float:
        """Milliseconds of CPU time, without the database's."""
        return 1000 * self.cpu / self.rows

    @property
    def database_cpu_of_a_row(self) -> float:
        """Milliseconds of CPU time of the database."""
        return 1000 * self.database_cpu / self.rows


def _added(runs: list[Run]) -> Run:
    """Return one run that took what *runs* of the same table took together."""
    return Run(
        seconds=sum(each.seconds for each in runs),
        cpu=sum(each.cpu for each in runs),
        database_cpu=sum(each.database_cpu for each in runs),
        rows=sum(each.rows for each in runs),
        results=runs[-1].results,
    )


def table(service: Simulator | None, many: int) -> list[dict[str, Any]]:
    """Return the rows, in their order: updates of the things in turn, and between them creates."""
    if service is None:
        things = [f"wh_{number}" for number in range(THINGS)]
    else:
        things = [service.seed_webhook()["id"] for _ in range(THINGS)]
    rows: list[dict[str, Any]] = []
    for number in range(many):
        order = f"row-{number:06}"
        webhook = things[number % THINGS]
        if number % CREATE_EVERY == CREATE_EVERY - 1:
            webhook = ""
        thing = webhook or f"https://rows.example/{order}"
        text = order if service is not None else "changed"
        rows.append(
            {
                "order": order,
                "at": number,
                "webhook": webhook,
                "thing": thing,
                "text": text,
            }
        )
    return rows


@contextmanager
def _program(
    python: str, name: str, how: str, folder: Path
) -> Iterator[subprocess.Popen[str]]:
    """Start the program of an engine in a session of its own; in the end its processes are gone."""
    with (folder / "log").open("a") as log:
        child = subprocess.Popen(  # noqa: S603 - the project's own program
            [python, "-m", "tests.soak.table_programs", name, how, str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
        )  # fmt: skip
    try:
        yield child
    finally:
        kill_session(child)


def _expect(child: subprocess.Popen[str], word: str, folder: Path) -> None:
    """Wait until the program says *word*."""
    assert child.stdout is not None
    for line in child.stdout:
        if line.strip() == word:
            return
    raise RuntimeError(f"no {word}:\n{(folder / 'log').read_text()[-3000:]}")


def run(
    python: str,
    name: str,
    how: str,
    base_url: str,
    api_key: str,
    rows: list[dict[str, Any]],
    *,
    service: Simulator | None = None,
    kills: int = 0,
    seed: int = 1,
) -> Run:
    """Write *rows* on one engine; in a *service* with faults, kill its workers meanwhile."""
    mark = f"{name}_{uuid4().hex[:8]}"
    silence = {"silence": 2}
    os.environ.update(
        INVSVC_BASE_URL=base_url, INVSVC_API_KEY=api_key, PYTHONPATH=str(Path.cwd()), PYSPARK_PYTHON=python,
        INVSVC_JOURNAL=database().at(journal=mark, **silence), BATCH=database().journal(mark, **silence),
        PYTHONWARNINGS="ignore",
    )  # fmt: skip
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = Path(place)
        lines = (json.dumps(row) for row in rows)
        (folder / "rows.jsonl").write_text("\n".join(lines), encoding="utf-8")
        os.environ["GIVEN"] = place if kills else ""
        with _program(python, name, how, folder) as child:
            _expect(child, "ready", folder)
            leader = child.pid
            own = Meter(lambda: in_session(leader))
            postgres = Meter(lambda: below(_postmaster()))
            killer = watcher = None
            if service is not None and kills:
                killer = Killer(
                    service,
                    len(rows),
                    kills,
                    lambda: _victims(leader, name, mark),
                    mark,
                    seed,
                )
                watcher = Watcher(killer, mark)
            for each in (own, postgres, killer, watcher):
                if each is not None:
                    each.start()
            time.sleep(0.3)  # sleeps: the meters begin
            began = time.monotonic()
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
            _expect(child, "done", folder)
            seconds = time.monotonic() - began
            found = Run(
                seconds=seconds,
                cpu=own.end(),
                database_cpu=postgres.end(),
                rows=len(rows),
                results=_results(folder),
            )
            if killer is not None and watcher is not None:
                killer.ended.set()
                killer.join()
                watcher.join()
                waits = _waits(killer.killed, watcher.first, folder)
                found = attrs.evolve(found, waits=waits)
            return found


def _victims(leader: int, name: str, mark: str) -> list[int]:
    """Return the processes that write: workers of a batch by their names, others by the locks that show them."""
    if name == "batch":
        pattern = re.compile(BATCH_WORKERS)
        return [pid for pid in in_session(leader) if pattern.search(command_of(pid))]
    files = set()
    for path in presence.MEMORY.glob(f"invsvc-workers-*/*{mark}*/*"):
        with suppress(FileNotFoundError):  # deleted meanwhile
            found = path.stat()
            files.add((found.st_dev, found.st_ino))
    lines = Path("/proc/locks").read_text().splitlines()
    locks = [line.split() for line in lines if "->" not in line]  # which waits
    holders = {int(lock[4]) for lock in locks if _file_of(lock[5]) in files}
    return sorted(holders.intersection(in_session(leader)))


def _file_of(shown: str) -> tuple[int, int]:
    """Return the numbers of device and file in a line of ``/proc/locks``."""
    major, minor, inode = shown.split(":")
    return os.makedev(int(major, 16), int(minor, 16)), int(inode)


def _results(folder: Path) -> dict[str, str]:
    found = map(json.loads, (folder / "results.jsonl").read_text().splitlines())
    verdicts: dict[str, str] = {}
    for each in found:
        assert each["key"] not in verdicts, f"{each['key']}: two results"
        verdicts[each["key"]] = each["verdict"]
    return verdicts


def _postmaster() -> int:
    server: Any = database()._server
    return int((Path(server.pgdata) / "postmaster.pid").read_text().split()[0])


@attrs.define(kw_only=True)
class Judgement:
    """What the ledger says of the results of a run."""

    applied: int = 0
    unknown: int = 0
    twice: int = 0
    out_of_order: int = 0
    wrong: int = 0
    missing: int = 0
    lost: int = 0


def judge(service: Simulator, rows: list[dict[str, Any]], ran: Run) -> Judgement:
    """Compare the results of *rows* with the ledger of *service*."""
    effects: Counter[str] = Counter()
    last: dict[str, str] = {}
    found = Judgement(
        lost=sum(each.answered is None for each in service.ledger.entries)
    )
    for entry in sorted(
        service.ledger.effects(), key=lambda each: each.applied_at or 0.0
    ):
        if entry.operation == "webhooks.update":
            shown = entry.body["description"]
            found.out_of_order += shown < last.get(entry.target, "")
            last[entry.target] = shown
        else:
            shown = entry.body["url"].rpartition("/")[2]
        effects[shown] += 1
    for row in rows:
        key = row["order"]
        verdict = ran.results.get(key)
        had = effects[key]
        found.twice += had > 1
        found.missing += verdict is None
        found.applied += verdict == "applied"
        found.unknown += verdict == "unknown"
        says = {"applied": True, "not applied": False, "refused": False}.get(
            verdict or ""
        )
        found.wrong += says is not None and says != bool(had)
        found.wrong += verdict == "superseded"  # nobody else was there
    return found


def _waits(
    killed: list[Kill], first: dict[tuple[float, str], float], folder: Path
) -> list[Wait]:
    """Return, for each kill, how long rows waited for a verdict that were under way then."""
    given = _given(folder)
    waits = []
    for kill in killed:
        whole = own = 0.0
        for key in kill.keys:
            done = first.get((kill.at, key), kill.at)
            times = given.get(key.rpartition(" ")[2], [])
            since = max((at for at in times if at < done), default=kill.at)
            whole = max(whole, done - kill.at)
            own = max(own, done - max(since, kill.at))
        waits.append(Wait(whole, own))
    return waits


def _given(folder: Path) -> dict[str, list[float]]:
    """Return when the engine gave each row to a worker, by the programs' notes."""
    found: dict[str, list[float]] = {}
    for path in folder.glob("given.*"):
        for line in path.read_text(encoding="utf-8").splitlines():
            at, _, order = line.partition(" ")
            if order:  # the last line of a killed process may be a part of one
                found.setdefault(order, []).append(float(at))
    return found


def _kind(mark: str) -> str:
    return "batch" if mark.startswith("batch_") else "journal"


async def entries_of(mark: str, which: str) -> dict[str, int]:
    """Return the entries of the batch or journal *mark*, by key, with the times at which they were done (ms)."""
    async with connected() as connection:
        schema = await schema_of(connection, _kind(mark), mark)
        if schema is None:
            return {}
        found = await connection.fetch(
            f"SELECT key, done_at FROM {schema}.entries WHERE {which}"
        )
    return {row["key"]: row["done_at"] for row in found}


def measure(
    python: str, name: str, many: int, kills: int, seed: int
) -> tuple[str, ...]:
    """Return the row of an engine in the table."""
    calm: dict[str, list[Run]] = {"keyed": [], "batch": [], "plain": []}
    with calm_service(DELAY) as base:
        rows = table(None, many)
        order = ("batch", "keyed", "plain")
        for what in (*order, *order[::-1]):  # each beside the same others
            engine, how = ("batch", "keyed") if what == "batch" else (name, what)
            ran = run(python, engine, how, base, "a.key", rows)
            _log(name, f"calm, {what}", ran)
            calm[what].append(ran)
    troubled: dict[str, Run] = {}
    for what in (name, "batch"):
        with serving(seed=seed, faults=FAULTS, latency=0.03) as service:
            rows = table(service, many)
            ran = run(
                python, what, "keyed", service.base_url, service.api_key, rows,
                service=service, kills=kills, seed=seed,
            )  # fmt: skip
            judged = judge(service, rows, ran)
            _log(name, f"killed, {what}", ran, judged)
            troubled[what] = ran
            if what == name:
                of_engine = judged
    keyed, batch, plain = (_added(calm[what]) for what in ("keyed", "batch", "plain"))
    killed = troubled[name]
    waits = sorted(wait.whole for wait in killed.waits) or [0.0]
    own = sorted(wait.own for wait in killed.waits) or [0.0]
    return (
        NAMES[name], f"{keyed.rate:.0f}", f"{keyed.rate / batch.rate:.2f}", f"{keyed.rate / plain.rate:.2f}",
        f"{keyed.cpu_of_a_row:.2f}", f"{batch.cpu_of_a_row:.2f}", f"{plain.cpu_of_a_row:.2f}",
        f"{keyed.database_cpu_of_a_row:.2f}", f"{killed.rate:.0f}",
        f"{killed.rate / troubled['batch'].rate:.2f}", str(len(killed.waits)), str(of_engine.lost),
        str(of_engine.applied), str(of_engine.unknown), str(of_engine.twice), str(of_engine.out_of_order),
        str(of_engine.wrong), str(of_engine.missing), f"{waits[len(waits) // 2]:.1f} s", f"{waits[-1]:.1f} s",
        f"{own[len(own) // 2]:.1f} s", f"{own[-1]:.1f} s",
    )  # fmt: skip


def _log(name: str, what: str, ran: Run, judged: Judgement | None = None) -> None:
    waits = ", ".join(f"{each.whole:.1f} ({each.own:.1f})" for each in ran.waits)
    more = "" if judged is None else f"; {judged}"
    print(  # noqa: T201 - of a long session
        f"{name}, {what}: {ran.rows} rows in {ran.seconds:.1f} s, {ran.rate:.0f} a second, "
        f"{ran.cpu_of_a_row:.2f} ms CPU a row, PostgreSQL {ran.database_cpu_of_a_row:.2f}; "
        f"{len(ran.waits)} kills, after them, in s: {waits}{more}",
        file=sys.stderr, flush=True,
    )  # fmt: skip


def _is_good(row: tuple[str, ...], kills: int) -> bool:
    """Return whether the ledger contradicts no result of *row*, and all *kills* were made."""
    cells = dict(zip(HEAD, row, strict=True))
    faults = ("twice", "out of order", "wrong", "no result")
    return cells["kills"] == str(kills) and all(cells[what] == "0" for what in faults)


def main(only: str = "", many: int = ROWS, kills: int = KILLS, seed: int = 1) -> bool:
    """Run each engine, print the table, and return whether all is well."""
    rows, absent = [HEAD], []
    for name, package in PACKAGES.items():
        if only not in {"", name, package}:
            continue
        python = sys.executable if find_spec(package) else elsewhere(package)
        if package == "pyspark" and shutil.which("java") is None:
            python = None
        if python is None:
            absent.append(
                f"{NAMES[name]}: not run, because {package} is not installed here."
            )
            continue
        rows.append(measure(python, name, many, kills, seed))
    lines = [
        "  ".join(cells) for cells in zip(*rows, strict=True)
    ]  # a column for each engine
    print("\n".join(lines + absent))  # noqa: T201 - a session's output
    return all(_is_good(row, kills) for row in rows[1:]) and len(rows) > 1


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(not main(*arguments[:1], *map(int, arguments[1:])))
