"""How-tos are short, and begin with a whole program that does what the page shows."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from docs.blocks import blocks_of
from invsvc_async.testing import serving
from tests.docs.pages import ROOT
from tests.support.waiting import block_until

pytestmark = pytest.mark.untraced

HOW_TO = ROOT / "docs/how-to"
OPERATIONS = {"restore.md", "doctor.md", "conformance.md"}  # and those called operate-…
PAGES = sorted(
    page for page in HOW_TO.glob("*.md")
    if page.name not in OPERATIONS and not page.name.startswith("operate-")
)  # fmt: skip
EVERY = sorted(HOW_TO.rglob("*.md"))
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINE = 110  # characters
# programs that a server runs, by their files
SERVED = {"receive-webhooks.md": "receive", "embed.md": "app"}
WHOLE = [
    page
    for page in PAGES
    if "asyncio.run(" in (next(blocks_of(page, "python"), None) or ("", ""))[1]
]


def prose_of(page):
    """Return the page without its blocks of code and output."""
    return BLOCK.sub("", page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_length_of_page(page) -> None:
    """It has at most 700 words beside its code, with its tables."""
    assert len(prose_of(page).split()) <= 700


@pytest.mark.parametrize("page", EVERY, ids=lambda page: page.stem)
def test_lines_of_page(page) -> None:
    """They fit a screen, but for JSON, what a program prints, and tables of *Operations*."""
    lines = BLOCK.sub(
        lambda block: block[0] if block[0].startswith("```python") else "",
        page.read_text(),
    ).splitlines()

    if page not in PAGES:
        lines = [line for line in lines if not line.startswith("|")]
    assert [line for line in lines if len(line) >= LINE] == []


def test_short_links_of_pages() -> None:
    """Each ``[text][label]`` has its address on a line of its own; otherwise a page shows the brackets."""
    missing = {
        f"{page.relative_to(ROOT)}: {label}"
        for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
        for label in re.findall(
            r"\]\[([\w ]+)\]", re.sub(r"`[^`\n]*`", "", prose_of(page))
        )
        if not re.search(rf"^\[{label}\]: \S+$", page.read_text(), re.MULTILINE)
    }
    assert missing == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_first_screen_of_page(page) -> None:
    """Before the first section, a short text says what for, and code shows it."""
    first = page.read_text().partition("\n## ")[0]
    title, goal, *_ = first.split("\n\n")

    assert title.startswith("# ")
    assert re.fullmatch(r"[A-Z](?:[^.?]|\.(?=\S))*\.", goal.replace("\n", " ")), goal
    assert "\n```" in first


def test_pages_that_tell_what_goes_wrong() -> None:
    """All do at their end, but those about types, forms and pages to look at."""
    quiet = {
        "models-elsewhere",
        "observe",
        "own-dedupe-store",
        "own-reader",
        "see-the-service",
        "types",
    }
    told = {
        page.stem
        for page in PAGES
        if "\n## When it goes wrong\n\n| You see | Because | Do |\n" in page.read_text()
    }

    assert {page.stem for page in PAGES} - told == quiet


def test_pages_with_a_program() -> None:
    """These are how-tos whose first block is a whole program, which a test below runs as a file."""
    assert {page.name for page in WHOLE} >= {
        "batch.md",
        "outbox.md",
        "settle-later.md",
        "task-engines.md",
        "asyncio-service.md",
    }


@pytest.mark.parametrize("page", WHOLE, ids=lambda page: page.stem)
def test_program_of_page(page, tmp_path) -> None:
    """In a file of its own, beside the service, it prints what stands below it."""
    block = next(blocks_of(page, "python"))
    (tmp_path / "program.py").write_text(block.code)
    with serving() as service:
        ran = subprocess.run(
            [sys.executable, "-W", "error", "program.py"],
            cwd=tmp_path, env=environment(service), capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert (ran.stdout, ran.stderr) == (block.output, "")


def environment(service):
    """Return that of a reader, where ``invsvc`` is a command."""
    return os.environ | {
        "INVSVC_BASE_URL": service.base_url, "INVSVC_API_KEY": service.api_key, "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
    }  # fmt: skip


@contextmanager
def uvicorn(page, folder, variables):
    """Run the page's first program by its first command, on a free port; give the port and its output."""
    name = SERVED[page.name]
    (folder / f"{name}.py").write_text(next(blocks_of(page, "python")).code)
    [what] = re.findall(rf"^uvicorn ({name}:\S+)$", page.read_text(), re.MULTILINE)
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        (folder / "log").open("w+") as log,
    ):
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            "--fd",
            str(listening.fileno()),
            "--log-level",
            "warning",
            what,
        ]
        server = subprocess.Popen(  # noqa: S603 - as above
            command,
            cwd=folder,
            env=variables,
            stdout=log,
            stderr=log,
            pass_fds=[listening.fileno()],
        )
        try:
            yield listening.getsockname()[1], folder / "log"
        finally:
            server.terminate()
            server.wait()


def run(text, port, folder, variables):
    """Run commands of a page against *port*; return what they print."""
    (folder / "invsvc").write_text(
        f'#!/bin/sh\nexec {sys.executable} -m invsvc_async.cli "$@"\n'
    )
    (folder / "invsvc").chmod(0o755)
    ran = subprocess.run(  # noqa: S603 - as above
        ["/bin/sh", "-euc", text.replace("127.0.0.1:8000", f"127.0.0.1:{port}")],
        cwd=folder, env=variables | {"PATH": f"{folder}:{os.environ['PATH']}"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize(
    ("version", "said"),
    [("v2", r"\S+ 116\.50"), ("v1", "v1 {.*}"), ("v1.1", r"v1\.1 {.*}")],
)
def test_receiver_of_page(tmp_path, version, said) -> None:
    """It handles the event that the page's command sends, as ``invsvc trigger`` expects, in each version."""
    page = HOW_TO / "receive-webhooks.md"
    commands = next(blocks_of(page, "")).code.partition("\n")[2]
    if version != "v2":
        commands = f"{commands.partition(' --set')[0]} --version {version}"
    with (
        serving() as service,
        uvicorn(page, tmp_path, environment(service)) as (port, log),
    ):
        run(commands, port, tmp_path, environment(service))
        printed = block_until(log.read_text)

    assert re.fullmatch(rf"invoice\.created {said}\n", printed)


def test_application_of_page(tmp_path) -> None:
    """It answers as the page shows, with the verdict."""
    page = HOW_TO / "embed.md"
    block = next(blocks_of(page, ""))
    with (
        serving() as service,
        uvicorn(page, tmp_path, environment(service)) as (port, _),
    ):
        printed = run(
            block.code.partition("\n")[2], port, tmp_path, environment(service)
        )

    assert printed == block.output
    assert '"verdict":"applied"' in (tmp_path / "answer.json").read_text()
