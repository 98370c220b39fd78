"""
Run task engines whose workers are killed, beside naive tasks, and compare what came of the tasks with the ledgers.

    python -m tests.soak.engines [ENGINE [TASKS [SEED]]]

The workers run the examples; of naive tasks a second service notes what they did.  The row of an engine has the
numbers of kills, of answers that were lost, and of tasks with two effects.  One that is not installed here is run
in the environment of the folder ``$ENGINES`` that has it, such as ``.nox``.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import random
import re
import shutil
import signal
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path
from typing import ClassVar

import asyncpg
import attrs

from invsvc_async.simulator import Faults, Simulator
from tests.support.database import database

FAULTS = Faults(rate=0.25, reads=0.02, late_up_to=0.3, hang=0.6)
# s without progress after which the engine itself is helped
STUCK = 45.0
# s that naive tasks have after the others: one that is lost with its worker never comes
NAIVE_PATIENCE = 60.0
HEAD = (
    "engine", "tasks", "kills", "lost answers", "applied", "twice", "verdicts that changed", "wait after a kill: median",
    "longest", "naive: twice", "naive: none",
)  # fmt: skip


class Engine:
    """One engine: its helpers, its workers, its tasks."""

    name: ClassVar[str]
    package: ClassVar[str]
    app: ClassVar[str]  # a module of tests/engines, which submits tasks

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.children: list[asyncio.subprocess.Process] = []

    async def begin(self) -> None:
        """Start what workers need."""

    async def run(self, *command: str, **settings: str) -> asyncio.subprocess.Process:
        """Start a program, in a process group of its own."""
        child = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **settings}, stdout=asyncio.subprocess.DEVNULL,
            stderr=(self.folder / "log").open("ab"), start_new_session=True,
        )  # fmt: skip
        self.children.append(child)
        return child

    async def worker(self) -> asyncio.subprocess.Process:
        raise NotImplementedError

    async def submit(self, tasks: int) -> None:
        await (await self.run_app(str(tasks))).wait()

    async def run_app(
        self, *arguments: str, **settings: str
    ) -> asyncio.subprocess.Process:
        """Start the module of the engine."""
        return await self.run(
            sys.executable, "-m", f"tests.engines.{self.app}", *arguments, **settings
        )

    def victims(self, worker: asyncio.subprocess.Process) -> list[int]:
        """Return the processes of which one is killed."""
        return [worker.pid]

    async def help(self) -> None:
        """Do what whoever operates the engine does when no task has ended for long."""


class Celery(Engine):
    """Celery with Redis and prefork; its worker's children are killed, which it replaces."""

    name, package, app = "Celery (prefork, Redis, acks late)", "celery", "celery_app"

    async def begin(self) -> None:
        port = random.randrange(20_000, 30_000)
        os.environ["BROKER"] = f"redis://127.0.0.1:{port}/0"
        await self.run(
            "redis-server", "--port", str(port), "--save", "", "--dir", str(self.folder)
        )
        await asyncio.sleep(0.5)

    async def worker(self) -> asyncio.subprocess.Process:
        return await self.run(
            sys.executable, "-m", "celery", "-A", "tests.engines.celery_app", "worker", "-P", "prefork", "-c", "3",
            "-l", "ERROR", "--without-gossip", "--without-mingle",
        )  # fmt: skip

    def victims(self, worker: asyncio.subprocess.Process) -> list[int]:
        children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children")
        return (
            [int(pid) for pid in children.read_text().split()]
            if children.exists()
            else []
        )


class Procrastinate(Engine):
    """procrastinate, whose jobs are in the same database as the journal."""

    name, package, app = "procrastinate", "procrastinate", "procrastinate_app"

    async def begin(self) -> None:
        os.environ["DATABASE"] = os.environ["PLACE"]

    async def worker(self) -> asyncio.subprocess.Process:
        return await self.run_app()


class Dask(Engine):
    """Dask distributed, with workers without a nanny."""

    name, package, app = "Dask distributed", "distributed", "dask_app"

    async def begin(self) -> None:
        port = random.randrange(20_000, 30_000)
        self.address = f"tcp://127.0.0.1:{port}"
        os.environ["DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES"] = "1000"
        command = (
            "scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--no-dashboard",
            "--no-show",
        )
        await self.run(sys.executable, "-m", "dask", *command)

    async def worker(self) -> asyncio.subprocess.Process:
        return await self.run(
            sys.executable, "-m", "dask", "worker", self.address, "--nthreads", "3", "--no-nanny", "--no-dashboard",
            "--death-timeout", "60",
        )  # fmt: skip

    async def submit(self, tasks: int) -> None:
        await self.run_app(self.address, str(tasks))


class Whole(Engine):
    """An engine that is one program with all its processes, which also submits the tasks."""

    # what the command lines of the processes have in common that run tasks
    runs_tasks: ClassVar[str]
    program: asyncio.subprocess.Process

    async def worker(self) -> asyncio.subprocess.Process:
        return self.program

    def victims(self, worker: asyncio.subprocess.Process) -> list[int]:
        return [
            pid
            for pid in _session(worker.pid)
            if re.search(self.runs_tasks, _command(pid))
        ]


class Ray(Whole):
    """Ray, which replaces a worker process that is killed."""

    name, package, app = "Ray", "ray", "ray_app"
    runs_tasks = r"^ray::(IDLE|register|create)"

    async def submit(self, tasks: int) -> None:
        self.program = await self.run_app(str(tasks), RAY_TMPDIR=str(self.folder))


class Spark(Whole):
    """Spark in local mode: its Python workers are killed, and their daemon, whose workers then live on beside new ones."""

    name, package, app = "Spark (local mode)", "pyspark", "spark_app"
    runs_tasks = r"pyspark\.daemon"

    async def submit(self, tasks: int) -> None:
        here = {
            "SPARK_LOCAL_DIRS": str(self.folder),
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={self.folder}",
        }
        self.program = await self.run_app(str(tasks), **here)


class Airflow(Whole):
    """Airflow: processes of tasks are killed, and those that watch them, whose tasks then live on beside new ones."""

    name, package = "Airflow (local executor)", "airflow"
    runs_tasks = "^airflow worker -- (LocalExecutor: )?[0-9a-f]{8}-"

    async def submit(self, tasks: int) -> None:
        shutil.copy("tests/engines/airflow_app.py", self.folder)
        port = random.randrange(20_000, 30_000)
        settings = {
            "AIRFLOW_HOME": self.folder,
            "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": port,
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": False,
            "AIRFLOW__CORE__DAGS_FOLDER": self.folder,
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
            "AIRFLOW__CORE__LOAD_EXAMPLES": False,
            "AIRFLOW__CORE__PARALLELISM": 8,
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": 10,
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": 2,
            "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": 10,
            "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT_CHECK_INTERVAL": 2,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TASKS": tasks,
        }
        self.settings = {name: str(value) for name, value in settings.items()}
        await self.start()

    async def start(self) -> None:
        self.program = await self.run(
            sys.executable, "-m", "airflow", "standalone", **self.settings
        )

    async def help(self) -> None:
        """
        Start Airflow again, unless a task is running: one that hangs is a fault.

        A task that a process of the LocalExecutor has taken is queued for good if that process is killed before
        the task starts: ``revoke_task``, by which a task that is queued for too long is given to another
        process, is not implemented there (Airflow 3.3).  After a restart, the scheduler adopts the task.
        """
        with closing(sqlite3.connect(self.folder / "airflow.db")) as own:
            running = "SELECT count(*) FROM task_instance WHERE state = 'running'"
            if own.execute(running).fetchone() != (0,):
                return
        kill_all(self.program)
        await self.program.wait()
        await self.start()


def _session(leader: int) -> list[int]:
    """Return the processes of a session, also those whose parents have ended."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError):
            if os.getsid(pid := int(folder.name)) == leader:
                found.append(pid)
    return found


def kill_all(leader: asyncio.subprocess.Process) -> None:
    """Kill a program with all processes that it has started."""
    for pid in _session(leader.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _command(pid: int) -> str:
    """Return the command line of a process, nothing if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(
            encoding="utf-8", errors="replace"
        )
    return ""


ENGINES = (Celery, Procrastinate, Dask, Ray, Spark, Airflow)


@attrs.frozen(kw_only=True)
class Row:
    """What came of the tasks of one engine."""

    engine: str
    tasks: int
    kills: int
    lost: int
    applied: int
    twice: int
    changed: int
    waits: list[float]
    naive_twice: int
    naive_none: int

    def cells(self) -> tuple[str, ...]:
        """Return the cells of its row in the table."""
        waits = self.waits or [0.0]
        numbers = (
            self.tasks,
            self.kills,
            self.lost,
            self.applied,
            self.twice,
            self.changed,
        )
        middle, longest = f"{statistics.median(waits):.1f} s", f"{max(waits):.1f} s"
        return (
            self.engine,
            *map(str, numbers),
            middle,
            longest,
            str(self.naive_twice),
            str(self.naive_none),
        )


async def run(
    engine_type: type[Engine], tasks: int, seed: int, *, patience: float = 1800.0
) -> Row:
    """Run the tasks of one engine, kill its workers, and judge."""
    chance = random.Random(seed)
    name = f"engines_{engine_type.package}"
    async with AsyncExitStack() as stack:
        place = await stack.enter_async_context(database().fresh(name))
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        )
        ours = await stack.enter_async_context(
            Simulator(seed=seed, faults=FAULTS, latency=0.03)
        )
        theirs = await stack.enter_async_context(
            Simulator(seed=seed, faults=FAULTS, latency=0.03)
        )
        (folder / "done").mkdir()
        mark = "&" if "?" in place else "?"
        os.environ.update(
            INVSVC_BASE_URL=ours.base_url, INVSVC_API_KEY=ours.api_key, PLACE=place,
            INVSVC_JOURNAL=f"{place}{mark}silence=2", NAIVE_BASE_URL=theirs.base_url, NAIVE_API_KEY=theirs.api_key,
            NAIVE_DONE=str(folder / "done"), PYTHONPATH=str(Path.cwd()),
        )  # fmt: skip
        engine = engine_type(folder)
        watch = await asyncpg.connect(place)
        try:
            await engine.begin()
            await engine.submit(tasks)
            killed, changed = await _killed(
                engine, watch, tasks, folder, chance, patience
            )
            await ours.settled()
            await theirs.settled()
            waits = await _waits(watch, killed)
            verdicts = Counter(verdict for _, verdict, _ in await _entries(watch))
        finally:
            for child in engine.children:
                kill_all(child)
                await child.wait()
            await watch.close()
            if os.environ.get("KEEP_LOG"):
                shutil.copy(folder / "log", os.environ["KEEP_LOG"])
    effects = Counter(
        entry.body["url"] for entry in ours.ledger.effects("webhooks.create")
    )
    naive = Counter(
        entry.body["url"] for entry in theirs.ledger.effects("webhooks.create")
    )
    return Row(
        engine=engine.name, tasks=tasks, kills=len(killed),
        lost=sum(entry.answered is None for entry in ours.ledger.entries), applied=verdicts["applied"],
        twice=sum(many > 1 for many in effects.values()), changed=changed, waits=waits,
        naive_twice=sum(many > 1 for many in naive.values()), naive_none=tasks - len(naive),
    )  # fmt: skip


class Progress:
    """Whether tasks still end."""

    def __init__(self) -> None:
        self._done, self._since = 0, time.monotonic()

    def is_stuck(self, done: int) -> bool:
        """Return whether no task has ended for ``STUCK`` s, now that *done* have; it then begins to count anew."""
        now = time.monotonic()
        stuck = done <= self._done and now > self._since + STUCK
        if stuck or done > self._done:
            self._done, self._since = done, now
        return stuck


async def _killed(
    engine: Engine,
    watch: asyncpg.Connection,
    tasks: int,
    folder: Path,
    chance: random.Random,
    patience: float,
) -> tuple[list[tuple[float, set[str]]], int]:
    """Kill workers until all tasks are done; return when, and what was open then, and how many verdicts changed."""
    workers = [await engine.worker() for _ in range(2)]
    until = time.monotonic() + patience
    killed: list[tuple[float, set[str]]] = []
    final: dict[str, str] = {}
    changed = 0
    progress = Progress()
    while time.monotonic() < until:
        entries = await _entries(watch)
        for key, verdict, _ in entries:
            if verdict in ("applied", "superseded"):
                changed += final.setdefault(key, verdict) != verdict
        naive = len([*(folder / "done").iterdir()])
        if len(final) >= tasks:
            until = min(until, time.monotonic() + NAIVE_PATIENCE)
            if naive >= tasks:
                break
        if progress.is_stuck(len(final) + naive):
            await engine.help()
        await asyncio.sleep(0.25)
        under_way = {key for key, verdict, _ in entries if verdict is None}
        if not under_way or len(killed) >= 20 or chance.random() < 0.5:
            continue
        number = chance.randrange(len(workers))
        if victims := engine.victims(workers[number]):
            with suppress(ProcessLookupError):
                os.kill(chance.choice(victims), signal.SIGKILL)
            killed.append((time.time(), under_way))
        if victims == [workers[number].pid] or workers[number].returncode is not None:
            await workers[number].wait()
            workers[number] = await engine.worker()
    return killed, changed


async def _entries(
    watch: asyncpg.Connection,
) -> list[tuple[str, str | None, int | None]]:
    schema = await watch.fetchval(
        "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'invoicing_journal_%'"
    )
    if schema is None or not await watch.fetchval(
        "SELECT to_regclass($1)", f"{schema}.entries"
    ):
        return []
    return [
        tuple(row)
        for row in await watch.fetch(
            f"SELECT key, verdict, done_at FROM {schema}.entries"
        )
    ]


async def _waits(
    watch: asyncpg.Connection, killed: list[tuple[float, set[str]]]
) -> list[float]:
    """Return how long after a kill each task that was open then was done."""
    done = {key: at for key, _, at in await _entries(watch) if at is not None}
    return [
        done[key] / 1000 - at
        for at, keys in killed
        for key in keys
        if done.get(key, 0) / 1000 > at
    ]


def elsewhere(package: str) -> str | None:
    """Return the Python of the environment in ``$ENGINES`` that has *package*."""
    found = Path(os.environ.get("ENGINES", ".nox")).glob(
        f"*/lib/python*/site-packages/{package}/__init__.py"
    )
    # whole: programs run in folders of their own
    pythons = (path.parents[4].absolute() / "bin" / "python" for path in found)
    return next(map(str, pythons), None)


async def _row_from(python: str, package: str, *more: int) -> tuple[str, ...] | None:
    """Run an engine in another environment; return the cells of its row, if there are any."""
    command = python, "-m", "tests.soak.engines", package, *map(str, more)
    child = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await child.communicate()
    cells = [tuple(re.split(r"\s{2,}", line)) for line in out.decode().splitlines()]
    return next((row for row in cells if len(row) == len(HEAD) and row != HEAD), None)


def _is_good(row: tuple[str, ...]) -> bool:
    """Return whether all tasks of *row* were applied, none twice, and no verdict changed."""
    cells = dict(zip(HEAD, row, strict=True))
    return (
        cells["applied"] == cells["tasks"]
        and cells["twice"] == cells["verdicts that changed"] == "0"
    )


async def main(only: str = "", tasks: int = 40, seed: int = 1) -> bool:
    """Run each engine, print the table, and return whether all is well."""
    rows, absent = [HEAD], []
    for engine_type in ENGINES:
        package = engine_type.package
        if only and only.lower() not in f"{engine_type.name} {package}".lower():
            continue
        if importlib.util.find_spec(package) is not None:
            rows.append((await run(engine_type, tasks, seed)).cells())
        elif (python := elsewhere(package)) is not None:
            row = await _row_from(python, package, tasks, seed)
            rows.append(row or (engine_type.name, *["no end"] * (len(HEAD) - 1)))
        else:
            absent.append(
                f"{engine_type.name}: not run, because {package} is not installed here."
            )
    print("\n".join(["  ".join(row) for row in rows] + absent))  # noqa: T201 - a session's output
    return all(map(_is_good, rows[1:])) and len(rows) > 1


if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(not asyncio.run(main(*arguments[:1], *map(int, arguments[1:]))))
