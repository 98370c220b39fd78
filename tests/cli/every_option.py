"""What the test of every option needs: command lines that are run with an option and without, and what they did."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async import Outbox
from invsvc_async.batch import Batch
from invsvc_async.cli.app import run
from tests.batch.conftest import client_of
from tests.batch.writing import all_of
from tests.cli.conftest import Terminal
from tests.outbox.conftest import enqueue
from tests.support.free_port import free_port
from tests.support.watchdog import MARK

if TYPE_CHECKING:
    from pathlib import Path

    from invsvc_async.simulator.ledger import Entry

if TYPE_CHECKING:
    from pathlib import Path

    from invsvc_async.simulator.ledger import Entry

# Commands that run until they are interrupted, and what they print once they do what they are for.
LASTING = {
    "serve": "base_url", "listen": "Listening on", "batch watch": "data_url", "outbox watch": "data_url",
    "journal watch": "data_url", "console": "console_url", "batch worker": "waiting for work", "outbox work": "sending",
    "mcp": " tool",
}  # fmt: skip


@attrs.define
class Ran:
    """What a command line did: what it printed, asked the service, sent to a receiver, and wrote in its folder."""

    code: int
    out: str
    err: str
    folder: Path
    asked: Sequence[Entry] = ()
    posts: Sequence[tuple[dict[str, str], bytes]] = ()
    opened: Sequence[str] = ()  # in a browser
    seen: Any = None  # by what was done meanwhile
    seconds: float = 0.0
    values: dict[str, Any] = attrs.field(factory=dict)  # of the world

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def text(self, name: str) -> str:
        """Return the content of a file, empty if there is none."""
        path = self.folder / name
        return (
            path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        )

    @property
    def writes(self) -> list[Entry]:
        return [each for each in self.asked if each.body is not None]


Shows = Callable[[Ran], object]
_NUMBERS = itertools.count()


@attrs.frozen(kw_only=True)
class Case:
    """
    A command line, what an option adds to it, and what shows then, and not without it.

    *instead* is what stands in place of the option in the other run.  In all words, ``{url}`` is the address of
    a receiver, ``{base}`` that of the service, and ``{folder}`` the folder of the run.
    """

    line: str
    given: str
    shows: Shows
    instead: str = ""
    last: str = ""  # words behind all others
    files: dict[str, str] = attrs.field(factory=dict)
    store: str = ""  # the kind of the store that is made first, in ``app.db``
    variables: dict[str, str] = attrs.field(factory=dict)
    answers: str | None = None  # of a person at a terminal
    # gets what was printed, of a command that lasts
    meanwhile: Callable[[World, str], Any] | None = None
    prepare: Callable[[World], None] | None = None
    spoken: str = ""  # lines on its standard input, which stays open
    then: str = ""  # a command line that is run after it, and whose output is added


class Receiver:
    """
    An HTTP receiver in threads, which answers as it is told; it keeps what came to its present address.

    A command that was ended may have a delivery on its way: that one is of the address of its run.
    """

    def __init__(self) -> None:
        self.posts: list[tuple[dict[str, str], bytes]] = []
        self.statuses: list[int] = []  # of the next answers
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                if self.path == outer.path:
                    outer.posts.append((headers, body))
                self.send_response(outer.statuses.pop(0) if outer.statuses else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}
        )
        self._thread.start()
        self.path = "/in"

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"

    def move(self) -> None:
        """Take an address that no run before has had."""
        self.path = f"/in/{next(_NUMBERS)}"
        self.posts = []

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Stream(io.TextIOWrapper):
    """A standard stream, with the buffer of bytes that a program expects of one."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def getvalue(self) -> str:
        buffer: Any = self.buffer
        return buffer.getvalue().decode()


class World:
    """A service, a receiver, and a folder for each run."""

    def __init__(
        self, service: Any, receiver: Receiver, folder: Path, patch: Any
    ) -> None:
        self.service, self.receiver, self._folder, self._patch = (
            service,
            receiver,
            folder,
            patch,
        )
        self.folder = folder
        self.values: dict[str, Any] = {
            "port": free_port(),
            "receiver_port": receiver.port,
        }
        self._number = 0
        self._before: set[int] = set()  # the entries from before the command
        self.is_with = False  # whether the run is the one with the option

    def run(self, case: Case, words: str) -> Ran:
        """Run the command line of *case* with *words* in a folder of its own."""
        self._number += 1
        self.is_with = words == case.given
        self.receiver.move()
        self.values["receiver_path"] = self.receiver.path
        self.folder = self._folder / str(self._number)
        self.folder.mkdir()
        for name, text in case.files.items():
            (self.folder / name).write_text(self._filled(text), encoding="utf-8")
        with self._patch.context() as patch:
            patch.chdir(self.folder)
            given = {
                "INVSVC_BASE_URL": self.service.base_url,
                "INVSVC_API_KEY": self.service.api_key,
            }
            for name in [
                each
                for each in os.environ
                if each.startswith("INVSVC_") and each != MARK
            ]:
                patch.delenv(name)
            for name, value in {**given, **case.variables}.items():
                patch.setenv(name, self._filled(value))
            if case.store:
                stored(self, case.store)
            if case.prepare is not None:
                case.prepare(self)
            opened: list[str] = []
            patch.setattr("webbrowser.open", opened.append)
            self._before = self._entries()
            begun = time.monotonic()
            ran = self._called(
                case, self._words(f"{case.line} {words}{case.last}"), patch
            )
            ran.seconds = time.monotonic() - begun
            if case.then:
                more = self._called(
                    attrs.evolve(case, answers=None), self._words(case.then), patch
                )
                ran.out += more.out
            ran.opened = opened
            ran.values = dict(self.values)
            ran.asked = self.asked()
            ran.posts = list(self.receiver.posts)
        return ran

    def asked(self) -> list[Entry]:
        """Return what the service was asked for since the command began."""
        return [each for each in self._all() if id(each) not in self._before]

    def called(self, line: str) -> Ran:
        """Run another command line in the same folder."""
        out, err = Stream(), Stream()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(self._words(line))
        assert code == 0, err.getvalue()
        return Ran(code, out.getvalue(), err.getvalue(), self.folder)

    def unique(self) -> str:
        """Return a name that no other run has."""
        return f"{os.getpid()}_{next(_NUMBERS)}"

    def _filled(self, text: str) -> str:
        for name, value in self.values.items():
            text = text.replace(f"{{{name}}}", str(value))
        for name, value in (
            ("{url}", self.receiver.url), ("{base}", self.service.base_url), ("{folder}", str(self.folder)),
            ("{python}", sys.executable),
        ):  # fmt: skip
            text = text.replace(name, value)
        return text

    def _words(self, line: str) -> list[str]:
        return [self._filled(word).replace("␣", " ") for word in line.split()]

    def _all(self) -> list[Entry]:
        ledger = self.service.ledger
        return sorted([*ledger.reads, *ledger.entries], key=lambda each: each.number)

    def _entries(self) -> set[int]:
        return {id(each) for each in self._all()}

    def _called(self, case: Case, words: list[str], patch: Any) -> Ran:
        out, err = (
            (Terminal(), Terminal())
            if case.answers is not None
            else (Stream(), Stream())
        )
        patch.setattr(
            sys,
            "stdin",
            Terminal(case.answers) if case.answers is not None else Stream(),
        )
        if words[:1] == ["mcp"]:
            with spoken(case.spoken) as stdin:
                patch.setattr(sys, "stdin", stdin)
                return self._run(case, words, out, err)
        return self._run(case, words, out, err)

    def _run(self, case: Case, words: list[str], out: Any, err: Any) -> Ran:
        lasts = next(
            (
                text
                for name, text in LASTING.items()
                if " ".join(words).startswith(name)
            ),
            None,
        )
        if (
            lasts is None
            or "--openapi" in words
            or "--replay" in words
            or "--help" in words
        ):
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    code = run(words)
                except Exception:  # noqa: BLE001 - with --debug
                    code = 70
                    err.write(traceback.format_exc())
            return Ran(code, out.getvalue(), err.getvalue(), self.folder)
        interrupter = Interrupter(
            lambda: out.getvalue() + err.getvalue(), lasts, case.meanwhile, self
        )
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            interrupter,
        ):
            code = run(words)
        return Ran(
            code, out.getvalue(), err.getvalue(), self.folder, seen=interrupter.seen
        )


class Interrupter:
    """Ends the command that runs in this thread as Ctrl-C does, once it has printed *ready*, and something was done."""

    def __init__(
        self, printed: Callable[[], str], ready: str, meanwhile: Any, world: World
    ) -> None:
        self._printed, self._ready, self._meanwhile, self._world = (
            printed,
            ready,
            meanwhile,
            world,
        )
        self.seen: Any = None
        self._failure: BaseException | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _watch(self) -> None:
        while not (
            self._ready in self._printed()
            and self._printed().endswith("\n")
            and _is_handled()
        ):
            if self._ended.wait(0.01):
                return
        try:
            if self._meanwhile is not None:
                self.seen = self._meanwhile(self._world, self._printed())
        except BaseException as error:  # noqa: BLE001 - raised in the other thread
            self._failure = error
        if not self._ended.is_set():
            os.kill(os.getpid(), signal.SIGINT)


def _is_handled() -> bool:
    """Return whether the command handles Ctrl-C by now, and not Python or the runner of its loop."""
    handler = signal.getsignal(signal.SIGINT)
    return (
        callable(handler)
        and handler is not signal.default_int_handler
        and not isinstance(handler, partial)
    )


@contextlib.contextmanager
def spoken(text: str) -> Iterator[Any]:
    """Yield a standard input with *text*, which is open until the block ends."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin, os.fdopen(writing, "wb", 0) as other_end:
        other_end.write(text.encode())
        yield stdin
        other_end.close()
        time.sleep(0.05)  # sleeps: until the thread that reads has seen the end


def stored(world: World, kind: str) -> None:
    """Make a store with a write of each sort in ``app.db``; those that are finished are told, but in an outbox."""
    asyncio.run(filled(world, kind))
    world.called(f"{kind} retry app.db forbidden")  # which waits from now on


async def filled(world: World, kind: str) -> None:
    """Do the writes of a store; two are refused, one is applied, and one is unknown."""
    service, path = world.service, world.folder / "app.db"
    service.script("webhooks.update", "403", "403")
    service.script("sheets.save_mapping", "reset")
    async with client_of(
        service, **({"journal": path} if kind == "journal" else {})
    ) as client:
        hook = service.seed_webhook().id
        writes = [
            client.webhooks.update(hook, description=key).keyed(key)
            for key in ("refused", "forbidden", "applied")
        ]
        writes.append(client.sheets.save_mapping({"a": "b"}).keyed("unknown"))
        if kind == "batch":
            async with Batch.open(path, client, concurrency=1) as batch:
                await all_of(batch, writes)
        elif kind == "outbox":
            async with Outbox.open(path, client, concurrency=1) as outbox:
                for write in writes:
                    await enqueue(outbox, write)
                async with outbox.dispatching():
                    for each in writes:
                        await outbox.wait(each.intent.key, timeout=300)
        else:
            for write in writes:
                with contextlib.suppress(Exception):
                    await write.outcome()


def lines(*writes: dict[str, Any]) -> str:
    """Return the file of a batch."""
    return "".join(json.dumps(each) + "\n" for each in writes)
