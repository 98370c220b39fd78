"""The programs on the page about webhooks, run as a reader would: in an empty folder, and on a real socket."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from docs.blocks import blocks_of
from tests.events.bodies import encoded, v2
from tests.support.waiting import until

pytestmark = pytest.mark.one_python

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/receive-webhooks.md"
UVICORN = ("uvicorn", "--uds", "socket")


def program_of(*marks: str) -> str:
    """Join the blocks that contain these words, in the order of the page."""
    found = [
        block.code
        for block in blocks_of(PAGE, "python")
        if any(mark in block.code for mark in marks)
    ]
    assert len(found) == len(marks)
    return "\n".join(found)


async def connected(
    path: Path,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    """Connect to the server, if it listens."""
    with suppress(OSError):
        return await asyncio.open_unix_connection(path)
    return None


async def exchange(folder: Path, request: bytes) -> bytes:
    """Send one request, as soon as the server listens."""
    async with asyncio.timeout(300):
        reader, writer = await until(lambda: connected(folder / "socket"))
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return answer


async def test_program_of_the_page(tmp_path: Path) -> None:
    """It starts, takes a delivery, handles it, and ends in order."""
    (tmp_path / "receive.py").write_text(program_of("@receiver.on_test"))
    body = encoded(v2("invoice.created"))
    head = [
        "POST /events HTTP/1.1", "Host: here", "Connection: close", "Content-Type: application/json",
        "X-Events-Key: value", f"Content-Length: {len(body)}", "", "",
    ]  # fmt: skip
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *UVICORN, "receive:receiver.asgi_app", cwd=tmp_path, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert child.stdout is not None

    try:
        answer = await exchange(tmp_path, "\r\n".join(head).encode() + body)
        said: list[bytes] = []
        async with asyncio.timeout(300):
            while not any(line.startswith(b"invoice.created ") for line in said):
                said.append(await child.stdout.readline())
                assert said[-1], said
    finally:
        child.send_signal(signal.SIGINT)
        rest, _ = await child.communicate()

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"stored")
    assert b"Traceback" not in b"".join(said) + rest
