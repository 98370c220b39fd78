"""A server that recycles its processes cuts no handler off, and begins none twice."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.events.bodies import encoded, headers_of, v2
from tests.support.kept_port import KeptPort
from tests.support.waiting import until

pytest.importorskip("gunicorn", reason="a server with workers")
pytestmark = [pytest.mark.one_python, pytest.mark.untraced]

ROOT = Path(__file__).parent.parent.parent
SENT = 40


def hooks(tmp_path: Path) -> str:
    """Return the hooks of the example, for the receiver of this test."""
    shown = (ROOT / "examples/gunicorn_hooks.py").read_text(encoding="utf-8")
    path = tmp_path / "gunicorn.conf.py"
    path.write_text(
        shown.replace("examples.receive", "tests.events.recycled_app"), encoding="utf-8"
    )
    return str(path)


def post(port: int, number: int) -> int | None:
    """Deliver one event; ``None`` if no worker took the connection."""
    raw = encoded(v2("invoice.created", number=number))
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/", raw, headers_of(raw, shared=True))
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


def noted(path: Path, word: str) -> Counter[str]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return Counter(line.split()[1] for line in lines if line.startswith(word))


@pytest.mark.parametrize("has_hooks", [False, True])
async def test_workers_that_are_recycled(tmp_path: Path, has_hooks: bool) -> None:
    """
    Each event that was answered is begun once and ends, whichever worker it came to.

    With the page's hooks that needs no further delivery, although each worker handles one event at a time.
    """
    port = KeptPort()
    notes = tmp_path / "notes"
    concurrency = "1" if has_hooks else "16"
    given = {
        "STORE": str(tmp_path / "events.db"),
        "NOTES": str(notes),
        "CONCURRENCY": concurrency,
    }
    arguments = ["-c", hooks(tmp_path)] if has_hooks else []
    options = (
        "-b",
        f"127.0.0.1:{port.number}",
        "--reuse-port",
        "-k",
        "gthread",
        "--max-requests",
        "5",
    )
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gunicorn", *options, *arguments, "tests.events.recycled_app:app",
        cwd=ROOT, env=os.environ | given, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for number in range(SENT):
            assert (
                await until(
                    lambda number=number: asyncio.to_thread(post, port.number, number)
                )
                == 200
            )
        await until(lambda: len(noted(notes, "end")) == SENT, within=120)
    finally:
        server.terminate()
        await server.wait()

    assert (
        noted(notes, "begin")
        == noted(notes, "end")
        == Counter({f"dlv_{n}": 1 for n in range(SENT)})
    )
