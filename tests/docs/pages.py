"""Run the Python blocks of a page as its readers would, against the embedded service."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import subprocess
import sys
from inspect import CO_COROUTINE
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from docs.blocks import blocks_of
from invsvc_async import ApiKey, Client
from invsvc_async.testing import serving
from tests.support.database import database

if TYPE_CHECKING:
    from docs.blocks import Block

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if not {"_build", "_generated"} & set(page.parts) and any(blocks_of(page, "python"))
)  # fmt: skip
TEST_FILE = re.compile(r"# (test_\w+\.py)\n")
PLUGIN_LOOPS = {
    "asyncio_mode": "auto",
    "asyncio_default_fixture_loop_scope": "function",
}


def run_page(page: Path, capsys, monkeypatch) -> None:
    """
    Run the blocks of *page* in one namespace, in which ``client``, ``hook`` and ``service`` are there.

    Variables of the environment that they set are gone afterwards.
    """
    with (
        serving() as service,
        asyncio.Runner() as runner,
        patch.dict(os.environ),
    ):
        service.seed_journey(id="jrn_1")
        monkeypatch.setenv("INVSVC_BASE_URL", service.base_url)
        monkeypatch.setenv("INVSVC_API_KEY", service.api_key)
        client = Client(service.base_url, ApiKey(service.api_key))
        try:
            hook = client.webhooks.create(
                url="https://me.example/hook", events=["invoice.created"]
            )
            names = {
                "client": client,
                "hook": runner.run(_value(hook)),
                "service": service,
                "__name__": "__main__",
            }
            for block in blocks_of(page, "python"):
                _run(block, page, names, runner)
                out = capsys.readouterr().out
                assert block.output is None or out == block.output, (
                    f"{page}:{block.line} printed {out!r}"
                )
        finally:
            runner.run(client.aclose())


async def _value(write):
    return await write


def _run(block: Block, page: Path, names, runner: asyncio.Runner) -> None:
    if found := TEST_FILE.match(block.code):
        return _run_tests(found[1], block)
    service = names["service"]
    code = block.code.replace("https://host.example/v2", service.base_url).replace(
        "eyJ...", service.api_key
    )
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    made = compile(
        "\n" * block.line + code, str(page), "exec", flags=flags, dont_inherit=True
    )
    if made.co_flags & CO_COROUTINE:
        return runner.run(eval(made, names))  # noqa: S307 - the project's own pages
    return exec(made, names)  # noqa: S102 - the same


def _run_tests(name: str, block: Block) -> None:
    Path(name).write_text(block.code)
    loops = [
        part
        for name, value in PLUGIN_LOOPS.items()
        for part in ("-o", f"{name}={value}")
    ]
    options = (
        "-p",
        "invsvc_async.pytest_plugin",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
        *loops,
    )
    environment = {
        "PYTHONPATH": str(ROOT),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        **(
            {"TEST_DATABASE_URL": database().address}
            if "invsvc_database" in block.code
            else {}
        ),
    }  # ours may be installed, or not
    command = [sys.executable, "-m", "pytest", "-q", "-p", "asyncio", *options, name]
    ran = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, env=environment, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "skipped" not in ran.stdout
