"""The report of a batch: terminal, lines of JSON, and a page in a real browser."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from invsvc_async.batch import Batch
from invsvc_async.batch.places import entries_of
from invsvc_async.batch.reports.html import page_of
from invsvc_async.batch.reports.not_applied import Groups
from invsvc_async.batch.reports.summary import Report, report_of
from invsvc_async.batch.result import Result, Summary
from invsvc_async.cli.app import run
from invsvc_async.reconcile.history import Verdict

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture
async def journal(service, client, tmp_path):
    """Return the journal of a batch in which one write was refused, one is unknown and two are applied."""
    path, hooks = tmp_path / "run.db", [service.seed_webhook() for _ in range(4)]
    service.script("webhooks.update", "403", "apply, then 500", "apply, then reset")
    service.script("webhooks.get", *["pass"] * 4)
    async with Batch.open(path, client, concurrency=1) as batch:
        writes = [
            client.webhooks.update(hook.id, description=f"<b>{i}</b>") for i, hook in enumerate(hooks[:3])
        ]
        bodies = client.sheets.save_mapping({"a": "personal"}).keyed("odd <key>")
        service.script("sheets.save_mapping", "reset")
        async for _ in batch.run([*writes, bodies]):
            pass
    return path


async def invsvc(*arguments):
    return await asyncio.to_thread(run, ["batch", *map(str, arguments)])


def groups_of_results(results):
    groups = Groups()
    for result in results:
        groups.add(result)
    return groups.sorted("run.db")


async def report(path):
    entries = entries_of(path, reading=True)
    await entries.open()
    try:
        return await report_of(entries, path.name)
    finally:
        await entries.aclose()


async def test_report_on_a_terminal(journal, capsys):
    """The report shows counts, costs, and what to do about each unknown write."""
    assert await invsvc("report", journal) == 0
    out = capsys.readouterr().out
    assert "webhooks.update\t2\t0\t1" in out
    assert "odd <key> (sheets.save_mapping): " in out
    assert "The specification has no read for this" in out


@contextmanager
def foreign_folder(journal):
    """Yield a folder in which this process may read a copy of the journal, and write nothing."""
    with TemporaryDirectory() as name:
        folder, is_root = Path(name), os.geteuid() == 0
        Path(shutil.copy(journal, folder)).chmod(0o644)
        folder.chmod(0o555)
        try:
            if is_root:
                os.seteuid(65534)
            yield folder
        finally:
            if is_root:
                os.seteuid(0)
            folder.chmod(0o755)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="there are no users here")
async def test_report_where_nothing_can_be_written(journal, capsys):
    """SQLite needs files beside the journal to read it, so that the error says to read a copy."""
    assert await invsvc("report", journal) == 0  # which imports all that it needs
    with foreign_folder(journal) as folder:
        assert await invsvc("report", folder / journal.name) == 1
    assert "Copy it" in capsys.readouterr().err


async def test_outcomes_as_lines(journal, capsys):
    """Each outcome is one line of JSON, without a body."""
    assert await invsvc("report", journal, "--jsonl", "-") == 0
    out = capsys.readouterr().out
    verdicts = sorted(json.loads(line)["verdict"] for line in out.splitlines())
    assert verdicts == ["applied", "applied", "refused", "unknown"]
    assert "personal" not in out


async def test_report_as_json(journal, capsys, tmp_path):
    """The report is one object: counts, times and the unknown writes; page and lines can be written beside it."""
    page, lines = tmp_path / "report.html", tmp_path / "outcomes.jsonl"
    assert await invsvc("report", journal, "--json", "--html", page, "--jsonl", lines) == 0
    out = capsys.readouterr().out
    told = json.loads(out)
    assert (told["total"], told["to_do"], told["sending"]) == (4, 0, 0)
    assert {name: count for name, count in told["verdicts"].items() if count} == {
        "applied": 2,
        "refused": 1,
        "unknown": 1,
    }
    assert told["operations"]["webhooks.update"]["refused"] == 1
    assert told["failures"] == {"HTTP 403": 1, "HTTP 500": 1, "ResponseLostError": 2}
    assert (told["attempts"], told["resends"]) == (4, 0)
    (unknown,) = [each for each in told["not_applied"] if each["verdict"] == "unknown"]
    assert ([each["key"] for each in unknown["writes"]], "no read" in unknown["advice"]) == (
        ["odd <key>"],
        True,
    )
    assert "personal" not in out
    assert page.exists()
    assert len(lines.read_text().splitlines()) == 4


async def test_report_while_the_batch_runs(journal, client, capsys):
    """A journal can be reported on while its owner works."""
    async with Batch.open(journal, client):
        assert await invsvc("report", journal) == 0
    assert "webhooks.update" in capsys.readouterr().out


async def test_page_needs_nothing_else(journal, tmp_path):
    """The page loads nothing, runs no script, and takes nothing of the batch's for markup."""
    page = page_of(await report(journal))
    assert re.findall(r"(?:src|href|url\(|@import|<script)", page) == []
    assert "odd &lt;key&gt;" in page
    assert "<key>" not in page


def test_page_escapes_every_text():
    """No text of the journal becomes markup, wherever it is shown."""
    odd = "<i>'\"$name&"
    unknown = Result(
        key=odd, operation=odd, verdict=Verdict.UNKNOWN, message=odd, candidates=[odd], story=odd, attempts=1
    )
    report = Report(
        name=odd,
        summary=Summary(to_do=0, sending=0, verdicts={Verdict.UNKNOWN: 1}, secrets_lost=0),
        operations={odd: Counter({Verdict.UNKNOWN: 1})},
        faults=Counter({odd: 1}),
        groups=groups_of_results([unknown]),
    )
    page = page_of(report)
    assert "<i>" not in page
    assert page.count("&lt;i&gt;&#x27;&quot;$name&amp;") == 9


async def test_page_shows_faults_only_where_there_were_any(journal, service, client, tmp_path):
    """The line of faults stands over a timeline that has some, and over no other."""
    assert "polyline" in page_of(await report(journal))

    async with Batch.open(tmp_path / "sound.db", client) as batch:
        async for _ in batch.run([client.webhooks.update(service.seed_webhook().id, description="sound")]):
            pass
    assert "polyline" not in page_of(await report(tmp_path / "sound.db"))


@pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")
async def test_page_in_a_browser(journal, tmp_path):
    """A browser renders the counts, the timeline's bars and the unknown write."""
    page = tmp_path / "report.html"
    page.write_text(page_of(await report(journal)), encoding="utf-8")
    child = await asyncio.create_subprocess_exec(
        CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path}", "--dump-dom", page.as_uri(),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    dom = (await child.communicate())[0].decode()
    assert "4 writes" in dom
    assert len(re.findall("<rect ", dom)) >= 2
    assert "<td>odd &lt;key&gt;" in dom
