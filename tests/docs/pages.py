"""Run the Python blocks of a page as its readers would, against the embedded service."""

from __future__ import annotations

import ast
import asyncio
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from inspect import CO_COROUTINE
from pathlib import Path
from typing import TYPE_CHECKING

from docs.blocks import blocks_of
from invsvc_async import ApiKey, Client
from invsvc_async.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docs.blocks import Block

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if not {"_build", "_generated"} & set(page.parts) and any(blocks_of(page, "python"))
)  # fmt: skip
TEST_FILE = re.compile(r"# (test_\w+\.py)\n")


@contextmanager
def served() -> Iterator[Simulator]:
    """Run the service in a loop and thread of its own, so that whole programs can be run beside it."""
    loop, service = asyncio.new_event_loop(), Simulator()
    service.seed_journey(id="jrn_1")
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(service.__aenter__(), loop).result(5)
    try:
        yield service
    finally:
        asyncio.run_coroutine_threadsafe(service.__aexit__(), loop).result(5)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


def run_page(page: Path, capsys, monkeypatch) -> None:
    """Run the blocks of *page* in one namespace, in which ``client``, ``hook`` and ``service`` are there."""
    with served() as service, asyncio.Runner() as runner:
        client = Client(service.base_url, ApiKey(service.api_key))
        monkeypatch.setenv("INVSVC_BASE_URL", service.base_url)
        monkeypatch.setenv("INVSVC_API_KEY", service.api_key)
        hook = runner.run(_value(client.webhooks.create(url="https://me.example/hook", events=["invoice.created"])))
        names = {"client": client, "hook": hook, "service": service, "__name__": "__main__"}
        for block in blocks_of(page, "python"):
            if found := TEST_FILE.match(block.code):
                _run_tests(found[1], block)
                continue
            _run(block, page, names, runner, service)
            out = capsys.readouterr().out
            assert block.output is None or out == block.output, f"{page}:{block.line} printed {out!r}"
        runner.run(client.aclose())


async def _value(write):
    return await write


def _run(block: Block, page: Path, names, runner: asyncio.Runner, service: Simulator) -> None:
    code = block.code.replace("https://host.example/v2", service.base_url).replace("eyJ...", service.api_key)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    made = compile("\n" * block.line + code, str(page), "exec", flags=flags, dont_inherit=True)
    if made.co_flags & CO_COROUTINE:
        runner.run(eval(made, names))  # noqa: S307 - the project's own pages
    else:
        exec(made, names)  # noqa: S102 - the same


def _run_tests(name: str, block: Block) -> None:
    Path(name).write_text(block.code)
    options = ("-p", "invsvc_async.pytest_plugin", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "-W", "error")
    command = [sys.executable, "-m", "pytest", "-q", *options, name]
    ran = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}, check=False)  # noqa: S603
    assert ran.returncode == 0, ran.stdout + ran.stderr
