"""Blocks of the pages that are not Python: commands run, settings load, files of valid writes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib

import pytest

from docs.blocks import TO_THE_LETTER, blocks_of
from invsvc_async import Client
from invsvc_async.client import options_of
from invsvc_async.testing import serving
from tests.docs.pages import PLUGIN_LOOPS, ROOT
from tests.docs.test_facts import PAGES

pytestmark = pytest.mark.untraced

HOW_TO = ROOT / "docs/how-to"
EVERY = [ROOT / "README.md", *PAGES]
FENCE = re.compile(r"^```(.*)\n", re.MULTILINE)
NAMED = re.compile(r"# (\w+\.py)\n")
PROGRAM = re.compile(r"^python (\w+\.py)", re.MULTILINE)
RUN = {"python", "shell", "sh", "text", "json", "toml"}
NOT_RUN = {
    "receive-webhooks.md",
    "handle-events.md",
    "batch.md",
    "outbox.md",
    "settle-later.md",
    "operate-receiver.md",
    "embed.md",
}  # commands that wait for events, or need PostgreSQL or a key: other tests run those


def kinds_of(page):
    return [
        kind
        for kind in FENCE.findall(page.read_text())[::2]
        if "{" not in kind and " examples/" not in kind
    ]


def test_output_after_a_command(tmp_path) -> None:
    """What a program prints may stand after the command that runs it, and belongs to both."""
    page = tmp_path / "page.md"
    page.write_text(
        "```python\n# a.py\n```\n\n```sh\npython a.py\n```\n\n```text\n1\n```\n"
        "```python\n# b.py\n```\n\n```sh\nls\n```\n\n```text\n2\n```\n"
    )

    assert [block.output for block in blocks_of(page, "python")] == ["1\n", None]
    assert [block.output for block in blocks_of(page, "sh")] == ["1\n", "2\n"]


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.name)
def test_kind_of_each_block(page) -> None:
    """It is one that something runs: a test, or the session that takes shell blocks from the page."""
    kinds = set(kinds_of(page))

    assert kinds <= RUN | ({""} if page.name in NOT_RUN else set())
    assert "sh" not in kinds or str(page.relative_to(ROOT)) in TO_THE_LETTER


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.name)
def test_command_after_its_program(page) -> None:
    """A reader is told to run a program only after its lines."""
    saved = {
        found[1]: block.line
        for block in blocks_of(page, "python")
        if (found := NAMED.match(block.code))
    }

    early = [
        name
        for kind in ("sh", "shell")
        for block in blocks_of(page, kind)
        for name in PROGRAM.findall(block.code)
        if block.line < saved.get(name, 0)
    ]
    assert early == []


@pytest.mark.parametrize(
    "page",
    [page for page in EVERY if "shell" in kinds_of(page)],
    ids=lambda page: page.stem,
)
def test_commands_of_page(page, tmp_path) -> None:
    """
    They exit with 0, one after the other in an empty folder, with the embedded service as the deployment.

    What a page shows after one is in their output.
    """
    for name, what in {"python": "", "invsvc": "-m invsvc_async.cli"}.items():
        (tmp_path / name).write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {what} "$@"\n'
        )
        (tmp_path / name).chmod(0o755)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with serving() as service:
        blocks = list(blocks_of(page, "shell"))
        script = "\n".join(block.code for block in blocks)
        script = script.replace("https://host.example/v2", service.base_url).replace(
            "eyJ...", service.api_key
        )
        found = {
            "INVSVC_BASE_URL": service.base_url,
            "INVSVC_API_KEY": service.api_key,
            "PYTHONPATH": str(ROOT),
        }
        ran = subprocess.run(  # noqa: S603 - the project's own pages
            ["/bin/sh", "-euc", script], cwd=tmp_path, capture_output=True, text=True, check=False,
            env=found | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        )  # fmt: skip

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert [
        block.line for block in blocks if (block.output or "") not in ran.stdout
    ] == [], ran.stdout


def test_settings_file(tmp_path, monkeypatch) -> None:
    """The page's file is one that a client is made from, with the names and the policy that stand there."""
    [block] = blocks_of(ROOT / "docs/reference/settings.md", "toml")
    (tmp_path / "invsvc.toml").write_text(block.code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INVSVC_API_KEY", "token")

    client = Client.from_env(profile="test")

    assert options_of(client).names.limit == "per_page"
    assert options_of(client).reconcile.settle_after_loss == 30.0


def test_settings_of_the_test_kit() -> None:
    """The page's settings of pytest are those that its own tests are run with."""
    [block] = blocks_of(HOW_TO / "test-your-code.md", "toml")

    assert tomllib.loads(block.code)["tool"]["pytest"]["ini_options"] == PLUGIN_LOOPS


def test_file_of_writes(tmp_path) -> None:
    """The page's lines are writes, by the batch's own check."""
    block = next(blocks_of(HOW_TO / "batch.md", "json"))
    (tmp_path / "writes.jsonl").write_text(block.code)
    command = [
        sys.executable,
        "-m",
        "invsvc_async.cli",
        "batch",
        "writes.jsonl",
        "--journal",
        "run.db",
        "--dry-run",
    ]
    found = {
        "INVSVC_BASE_URL": "http://127.0.0.1:1/v2",
        "INVSVC_API_KEY": "token",
        "PYTHONPATH": str(ROOT),
    }
    ran = subprocess.run(  # noqa: S603
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env=found
    )

    assert ran.returncode == 0, ran.stderr
    assert f"{len(block.code.splitlines())} valid writes" in ran.stderr


def test_line_of_a_report() -> None:
    """It has the three fields that a judged client prints."""
    [block] = blocks_of(HOW_TO / "conformance.md", "json")

    assert set(json.loads(block.code)) == {"key", "verdict", "reason"}


def test_page_of_the_receiver() -> None:
    """The commands of the page hold the very header and secret that its `receive.py` expects."""
    text = (HOW_TO / "receive-webhooks.md").read_text()
    name, value = re.search(r'SharedHeader\("(.+)", "(.+)"\)', text).groups()
    secret = re.search(r'secrets=\["(.+?)"', text)[1]

    assert (
        f"export INVSVC_SHARED_HEADER={name}={value} INVSVC_WEBHOOK_SECRET={secret}\n"
        in text
    )
    assert f'{{"{name}": "{value}"}}' in text


def test_commands_that_keep_what_they_read() -> None:
    """No command of a page is sent into the file of settings, which the shell empties before it is read."""
    assert [
        page.name for page in EVERY if re.search(r">\s*invsvc\.toml", page.read_text())
    ] == []
