"""The servers, how each is started, and how each is told to begin with new workers."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parent.parent.parent.parent
_APP = "tests.soak.servers.app"
DEADLINE = 5.0  # s, of the receiver
# Requests after which a worker is recycled: soon, or in no test.
SOON = 25
NOT_HERE = 1_000_000
_HOOKS = ("-c", f"python:{_APP}")
_GUNICORN = (
    "gunicorn",
    "-b",
    "127.0.0.1:{port}",
    "-w",
    "2",
    "--log-level",
    "error",
    "--max-requests",
    "{recycled_after}",
)
_UVICORN = (
    "uvicorn",
    "--port",
    "{port}",
    "--workers",
    "2",
    "--log-level",
    "error",
    "--limit-max-requests",
    "{recycled_after}",
)
_UVICORN_WORKER = "uvicorn_worker.UvicornWorker"


@attrs.frozen(kw_only=True)
class SetUp:
    """
    One server: its command, after ``python -m``.

    ``{port}`` stands for the port in it, and ``{recycled_after}`` for the requests after which a worker ends.

    *told* begins new workers; without workers, the server ends by it and is started again.
    """

    name: str
    command: tuple[str, ...]
    recycles: bool = True  # a worker ends after some requests
    has_workers: bool = True
    fails_as_one: bool = False  # once a worker is killed, the server ends the others at once, by a signal

    @property
    def told(self) -> signal.Signals:
        """Return the signal by which the server begins with new workers."""
        return signal.SIGHUP if self.has_workers else signal.SIGTERM


SET_UPS = [
    SetUp(name="uvicorn, h11", command=(*_UVICORN, "--http", "h11", f"{_APP}:asgi")),
    SetUp(name="uvicorn, httptools", command=(*_UVICORN, "--http", "httptools", f"{_APP}:asgi")),
    SetUp(
        name="hypercorn",
        command=("hypercorn", "-b", "127.0.0.1:{port}", "-w", "2", "--max-requests", "{recycled_after}", f"{_APP}:asgi"),
        fails_as_one=True,
    ),
    SetUp(
        name="granian",
        command=(
            "granian", "--port", "{port}", "--interface", "asgi", "--workers", "2",
            "--respawn-failed-workers", "--respawn-interval", "0.1", "--no-ws", f"{_APP}:asgi",
        ),
        recycles=False,  # by age alone, at least a minute
    ),
    SetUp(name="gunicorn, gthread", command=(*_GUNICORN, "-k", "gthread", "--threads", "4", *_HOOKS, f"{_APP}:wsgi")),
    SetUp(name="gunicorn, uvicorn worker", command=(*_GUNICORN, "-k", _UVICORN_WORKER, f"{_APP}:asgi")),
    SetUp(name="waitress", command=(_APP, "{port}"), recycles=False, has_workers=False),
    SetUp(
        name="Django, gunicorn gthread",
        command=(*_GUNICORN, "-k", "gthread", "--threads", "4", *_HOOKS, f"{_APP}:django_wsgi"),
    ),
    SetUp(
        name="Django, gunicorn uvicorn worker",
        command=(*_GUNICORN, "-k", _UVICORN_WORKER, f"{_APP}:django_asgi"),
    ),
    SetUp(
        name="aiohttp",
        command=("aiohttp.web", "-H", "127.0.0.1", "-P", "{port}", f"{_APP}:aiohttp_app"),
        recycles=False,
        has_workers=False,
    ),
    SetUp(
        name="aiohttp, gunicorn",
        command=(*_GUNICORN, "-k", "aiohttp.GunicornWebWorker", f"{_APP}:aiohttp_app_of_gunicorn"),
    ),
]  # fmt: skip


class Server:
    """A running server; it is started again whenever it has ended, as a supervisor does."""

    def __init__(
        self,
        set_up: SetUp,
        environment: Mapping[str, str],
        log: Path,
        *,
        recycled_after: int,
    ) -> None:
        self.set_up = set_up
        self._recycled_after = recycled_after
        self.starts = 0
        self._environment = environment
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._living: asyncio.Task[None] | None = None
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port: int = found.getsockname()[1]

    async def __aenter__(self) -> Self:
        """Start it, and go on starting it."""
        self._living = asyncio.create_task(self._live())
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it, and whatever it has started."""
        assert self._living is not None
        self._living.cancel()
        with suppress(asyncio.CancelledError):
            await self._living
        if self._process is not None and self._process.returncode is None:
            children = children_of(self._process.pid)
            self._process.terminate()
            try:
                async with asyncio.timeout(40):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
            for child in children:
                kill(child)

    async def _live(self) -> None:
        while True:
            values = {"port": self.port, "recycled_after": self._recycled_after}
            command = [each.format(**values) for each in self.set_up.command]
            with self._log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", *command,
                    cwd=ROOT, env=os.environ | self._environment, stdout=log, stderr=log,
                    start_new_session=True,
                )  # fmt: skip
            self.starts += 1
            await self._process.wait()
            await asyncio.sleep(0.1)

    def renew(self) -> None:
        """Tell it to begin with new workers; one without workers ends, and is started again."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(self.set_up.told)

    def workers(self, noted: set[int]) -> list[int]:
        """Return the living processes that receive, of those that have *noted* something."""
        assert self._process is not None
        if not self.set_up.has_workers:
            return [self._process.pid]
        return sorted(noted & children_of(self._process.pid))


def children_of(pid: int) -> set[int]:
    """Return the processes that *pid* has started and that run."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found |= {int(each) for each in task.read_text().split()}
    return found


def kill(pid: int) -> None:
    """Kill a process that this program has started, if it still runs."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
