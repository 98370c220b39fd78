"""
Terminal pictures and the demo's chart: ``python docs/make_pictures.py [NAME …]``.

Each command really runs, in its own terminal, against the embedded service.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async.batch import Batch
    from tests.support.browser import Page

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
os.environ["PYTHONPATH"] = str(HERE.parent)

from invsvc_async.testing import serving  # noqa: E402 - after the path is set

WIDTH = 120
NARROW = 60  # for few words
PAGE_WIDTH = 1000  # of a page, so that its words can be read where the picture is shown
INVSVC = [sys.executable, "-m", "invsvc_async.cli"]
MOVES = re.compile(r"\x1b\[(?:\?25[lh]|[0-9]*[ABCDGJK])")


def line_of(number: int) -> str:
    """Return one line of a batch's file."""
    team = f"team_{number % 3 + 1}"
    arguments = {
        "url": f"https://me.example/{number}",
        "events": ["invoice.created"],
        "team": team,
    }
    return (
        json.dumps(
            {
                "operation": "webhooks.create",
                "arguments": arguments,
                "key": f"row-{number}",
            }
        )
        + "\n"
    )


def shown(*command: str, width: int) -> str:
    """Run one command in a terminal and give what stands there at its end, colours and all."""
    main, side = pty.openpty()
    environment = {
        **os.environ,
        "COLUMNS": str(width),
        "LINES": "50",
        "TERM": "xterm-256color",
    }
    nothing = subprocess.DEVNULL
    child = subprocess.Popen(  # noqa: S603
        command, stdin=nothing, stdout=side, stderr=nothing, env=environment
    )
    os.close(side)
    parts = []
    with suppress(OSError):  # Linux: the other end is closed
        while part := os.read(main, 65536):
            parts.append(part)
    os.close(main)
    child.wait()
    return MOVES.sub("", b"".join(parts).decode().replace("\r\n", "\n"))


def picture(name: str, *commands: tuple[str, ...], width: int = WIDTH) -> list[str]:
    """Keep one terminal with the *commands* of invsvc and what they printed; give that, too."""
    printed = [shown(*INVSVC, *each, width=width).rstrip() for each in commands]
    said = [f"invsvc {shlex.join(each)}" for each in commands]
    terminal(name, [*zip(said, printed, strict=True)], width)
    return printed


def terminal(name: str, printed: list[tuple[str, str]], width: int = WIDTH) -> None:
    """Keep one terminal with commands and what they have *printed*."""
    console = Console(
        record=True,
        width=width,
        file=StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    for command, text in printed:
        console.print(Text(f"$ {command}", style="bold green"))
        console.print(Text.from_ansi(text))
        console.print()
    (HERE / "_static" / "terminal").mkdir(parents=True, exist_ok=True)
    console.save_svg(str(HERE / "_static" / "terminal" / f"{name}.svg"), title="invsvc")


@contextmanager
def somewhere(*, losing: bool) -> Iterator[None]:
    """Run a service for the commands, in an empty folder; if *losing*, the first create loses its answer."""
    before = Path.cwd()
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(admin=True, inspect=True) as service,
    ):
        os.environ.update(
            INVSVC_BASE_URL=service.base_url, INVSVC_API_KEY=service.api_key
        )
        if losing:
            service.script("webhooks.create", "apply, then reset")
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def demo() -> None:
    """Picture the demo's table, and chart its counts."""
    [printed] = picture("demo", ("demo",))
    counted = counts(Text.from_ansi(printed).plain)
    (HERE / "_static" / "demo.svg").write_text(chart(counted))
    rows = [
        f"| {words} | {ordinary:,} | {ours:,} |" for words, ordinary, ours in counted
    ]
    table = [
        "| Seed 1, the default faults | An ordinary client | This one |",
        "|---|--:|--:|",
        *rows,
    ]
    head = "![Duplicates, wrong verdicts, lost writes and unknowns of both clients](/_static/demo.svg)"
    (HERE / "_generated" / "demo.md").write_text("\n".join([head, "", *table, ""]))


def counts(printed: str) -> list[tuple[str, int, int]]:
    """Return the compared rows of the demo's table."""
    wanted = {
        "writes requested": "writes requested",
        "duplicates (took effect again)": "duplicate effects",
        "wrong verdicts": "wrong verdicts",
        "lost (applied, but no effect)": "lost writes",
        "reported unknown": "unknown",
        "write requests sent": "write requests",
        "read requests sent": "reads",
    }
    found = []
    for name, words in wanted.items():
        row = re.search(
            rf"^\s*{re.escape(name)}\s+([\d,]+)\s+([\d,]+)\s*$", printed, re.MULTILINE
        )
        if row is None:
            raise LookupError(f"the demo printed no row {name!r}")
        found.append((words, *(int(count.replace(",", "")) for count in row.groups())))
    return found


def chart(counted: list[tuple[str, int, int]]) -> str:
    """Draw what went wrong, for each client, as bars."""
    charted = {"duplicate effects", "wrong verdicts", "lost writes", "unknown"}
    wanted = [row for row in counted if row[0] in charted]
    most = max(max(row[1:]) for row in wanted)
    parts, y = [], 26
    for words, *both in wanted:
        parts.append(f'<text x="112" y="{y + 16}" text-anchor="end">{words}</text>')
        for number, (count, colour) in enumerate(
            zip(both, ("#c96f5e", "#3f8f5b"), strict=True)
        ):
            wide, top = round(250 * count / most), y + 13 * number
            parts.append(
                f'<rect x="120" y="{top}" width="{max(wide, 1)}" height="10" fill="{colour}"/>'
            )
            parts.append(f'<text x="{128 + wide}" y="{top + 10}">{count}</text>')
        y += 29
    key = '<rect x="120" y="6" width="12" height="12" fill="#c96f5e"/>'
    key += '<text x="138" y="17">an ordinary client</text>'
    key += '<rect x="270" y="6" width="12" height="12" fill="#3f8f5b"/><text x="288" y="17">this one</text>'
    look = 'font-family="sans-serif" font-size="13"'
    dark = "@media (prefers-color-scheme: dark) { text { fill: #9ca0a5 } }"
    style = f"<style>text {{ fill: #5a5c63 }} {dark}</style>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="420" viewBox="0 0 420 {y}" {look}>'
    return f"{head}{style}{key}{''.join(parts)}</svg>\n"


def list_() -> None:
    """Picture a list."""
    picture("list", ("list", "invoices.egress", "status=valid", "limit=8"), width=126)


def write() -> None:
    """Picture a write whose answer is lost."""
    picture(
        "write",
        (
            "write",
            "webhooks.create",
            "url=https://me.example/lost",
            "events=invoice.created",
        ),
    )


def batch() -> None:
    """Picture a batch that was killed and goes on, and a third run of it."""
    Path("writes.jsonl").write_text("".join(map(line_of, range(1, 241))))
    command = (
        "batch",
        "writes.jsonl",
        "--journal",
        "run.db",
        "--secrets-to",
        "secrets.jsonl",
    )
    _killed(*command, "--rate", "120")
    picture("batch", command, command)


def _killed(*command: str) -> None:
    """Run a batch, and kill it once its 100th webhook has been created."""
    running = subprocess.Popen([*INVSVC, *command], stdout=subprocess.DEVNULL)  # noqa: S603
    secrets = Path("secrets.jsonl")
    while not (secrets.exists() and '"row-100"' in secrets.read_text()):
        time.sleep(0.1)
    running.kill()
    running.wait()


def table() -> None:
    """Picture a table on Dask, one of whose workers is killed meanwhile; needs an environment with Dask."""
    from tests.engines.tables import Killer, descendants
    from tests.soak.engines import elsewhere
    from tests.support.database import database

    python = elsewhere("distributed")
    if python is None:
        raise LookupError("distributed is in no environment of the folder $ENGINES")
    program = HERE.parent / "examples" / "dask_table.py"
    with serving(latency=0.5) as service:  # long enough to be killed meanwhile
        os.environ.update(
            INVSVC_BASE_URL=service.base_url, INVSVC_API_KEY=service.api_key,
            INVSVC_JOURNAL=database().at(journal="picture"),
        )  # fmt: skip
        killer = Killer(service, lambda: descendants(os.getpid(), "spawn_main"), 10)
        killer.start()
        ran = shown(python, str(program), width=NARROW).strip()
        assert killer.killed is not None
        made = len(service.ledger.effects("webhooks.create"))
        assert made == 100, f"{made} webhooks"
    terminal("table", [(f"python {program.name}", ran)], NARROW)


def doctor() -> None:
    """Picture doctor."""
    picture("doctor", ("doctor",))


def inspector() -> None:
    """Picture the inspector's page after a create whose answer is lost; needs Chromium."""
    from invsvc_async.cli.app import run

    run(["write", "journeys.update", "jrn_1", "name=Reminders"])
    run(
        [
            "write",
            "webhooks.create",
            "url=https://me.example/in",
            "events=invoice.created",
        ]
    )
    run(["list", "webhooks"])
    asyncio.run(_inspected())


async def _inspected() -> None:
    from tests.support.browser import browser

    address = os.environ["INVSVC_BASE_URL"].removesuffix("/v2") + "/_inspect/"
    row = "[...document.querySelectorAll('#arrivals tr')].find(each => each.textContent.includes('reset'))"
    async with browser(Path.cwd()) as page:
        await page.open(address, PAGE_WIDTH, 1250)  # so that all of it is seen
        await page.until(row + " && true")
        await page.run(row + ".click()")
        await page.until("document.querySelector('#detail svg') && true")
        await _kept(page, "inspector")


async def _kept(page: Page, name: str) -> None:
    """Keep a picture of the page as it is in light mode, and one as it is in dark mode."""
    for mode, end in (("light", ""), ("dark", "-dark")):
        await page.prefer(mode)
        picture = await page.picture()
        (HERE / "_static" / f"{name}{end}.png").write_bytes(picture)


def batch_watch() -> None:
    """Picture the page of a batch during an outage; needs Chromium."""
    lines = [line_of(number) for number in range(6000)]
    for number in range(0, 6000, 50):
        fields = {
            "operation": "webhooks.delete",
            "arguments": {"webhook": "wh_none"},
            "key": f"row-{number}",
        }
        lines[number] = json.dumps(fields) + "\n"
    Path("writes.jsonl").write_text("".join(lines))
    asyncio.run(_watched())


async def _watched() -> None:
    from invsvc_async import ApiKey, Client
    from invsvc_async.batch import Batch
    from invsvc_async.batch.reports.live import Watch
    from invsvc_async.cli.commands.stores import PAGE
    from invsvc_async.simulator import Faults, Simulator
    from invsvc_async.simulator.loopback_page import serving_page
    from tests.support.browser import browser

    async with (
        Simulator() as service,
        Client(service.base_url, ApiKey(service.api_key)) as client,
        Batch.open("run.db", client, rate=120, concurrency=8) as batch,
    ):
        running = asyncio.create_task(_run(batch))
        await service.arrived("webhooks.create", 400)
        watch = Watch(batch.entries, "run.db")
        async with (
            serving_page(PAGE, watch.data) as address,
            browser(Path.cwd() / "profile") as page,
        ):
            await page.open(address, PAGE_WIDTH, 900)  # so that all of it is seen
            await page.until("document.querySelectorAll('#chart rect').length > 7")
            service.faults = Faults(rate=1.0, reads=1.0, kinds=("503",))
            await page.until(
                "document.querySelector('.pause')?.textContent.includes('Next probe')"
            )
            await page.run("document.querySelector('summary').click()")
            await _kept(page, "batch-watch")
        running.cancel()
        await asyncio.wait([running])


def console() -> None:
    """Picture the console with the question before a write is resolved; needs Chromium."""
    asyncio.run(_asked())


async def _asked() -> None:
    from invsvc_async import ApiKey, Client
    from invsvc_async.simulator import Simulator
    from tests.cli.opened_console import running_console
    from tests.support.browser import browser

    async with Simulator() as service:
        service.script("sheets.save_mapping", "apply, then reset")
        service.script("journeys.update", "403")
        async with Client(
            service.base_url, ApiKey(service.api_key), journal="orders.db"
        ) as client:
            for month in ("March", "April"):
                await client.journeys.update("jrn_1", name=month).keyed(month).outcome()
            write = client.sheets.save_mapping({"sheet": "May"})
            await write.keyed("sheet May").outcome()
    async with (
        running_console("orders.db") as url,
        browser(Path.cwd() / "profile") as page,
    ):
        await page.open(url, 1000, 780)
        row = "[...document.querySelectorAll('#rows tr')].find(each => each.textContent.includes('sheet'))"
        await page.until(row + " && true")
        await page.run(row + ".click()")
        await page.until(
            "document.querySelector('button[data-change=resolve]') && true"
        )
        await page.run("document.querySelector('button[data-change=resolve]').click()")
        found = {"of": "conn_1", "because": "seen in the dashboard", "by": "ann"}
        for name, words in found.items():
            await page.run(f"document.getElementById('{name}').value = '{words}'")
        await page.run("document.getElementById('applied').click()")
        await page.run("document.getElementById('finding-next').click()")
        await page.until("document.getElementById('question').open")
        await _kept(page, "console")


async def _run(batch: Batch) -> None:
    async for _ in batch.run("writes.jsonl"):
        pass


PICTURES = {
    "demo": demo, "list": list_, "write": write, "batch": batch, "table": table, "doctor": doctor,
    "inspector": inspector, "batch-watch": batch_watch, "console": console,
}  # fmt: skip


def main() -> None:
    """Make the requested pictures, or all."""
    for name in sys.argv[1:] or PICTURES:
        with somewhere(losing=name in ("write", "inspector")):
            PICTURES[name]()


if __name__ == "__main__":
    main()
