"""The report of a batch: terminal, lines of JSON, and a page in a real browser."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections import Counter
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import invsvc_async
from invsvc_async.batch import Batch
from invsvc_async.batch.reports.html import listing_page, page_of
from invsvc_async.batch.reports.not_applied import Groups
from invsvc_async.batch.reports.summary import Report, Slice, report_of, slices_of
from invsvc_async.batch.result import Result, Summary
from invsvc_async.batch.run_status import Pause, Status
from invsvc_async.cli.app import run
from invsvc_async.reconcile.history import Verdict
from tests.batch.writing import all_of, opened, run_all
from tests.support.browser import BROKEN, CHROMIUM, FITS, browser

pytestmark = pytest.mark.one_python


@pytest.fixture
async def journal(service, client, path):
    """Return the journal of a batch in which one write was refused, one is unknown and two are applied."""
    hooks = [service.seed_webhook() for _ in range(4)]
    service.script("webhooks.update", "403", "apply, then 500", "apply, then reset")
    service.script("webhooks.get", *["pass"] * 4)
    async with Batch.open(path, client, concurrency=1) as batch:
        writes = [
            client.webhooks.update(hook.id, description=f"<b>{i}</b>")
            for i, hook in enumerate(hooks[:3])
        ]
        bodies = client.sheets.save_mapping({"a": "personal"}).keyed("odd <key>")
        service.script("sheets.save_mapping", "reset")
        await all_of(batch, [*writes, bodies])
    return path


async def told_by(capsys, *arguments):
    """Return what ``invsvc batch report`` prints."""
    assert await asyncio.to_thread(run, ["batch", "report", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def groups_of_results(results):
    groups = Groups()
    for result in results:
        groups.add(result)
    return groups.sorted("run.db")


async def report(path):
    async with opened(path, reading=True) as entries:
        return await report_of(entries, path.name)


async def test_report_on_a_terminal(journal, capsys):
    """The report shows counts, costs, and what to do about each unknown write."""
    out = await told_by(capsys, journal)
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
    await told_by(capsys, journal)  # which imports all that it needs
    with foreign_folder(journal) as folder:
        assert (
            await asyncio.to_thread(
                run, ["batch", "report", str(folder / journal.name)]
            )
            == 1
        )
    assert "Copy it" in capsys.readouterr().err


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
        key=odd,
        operation=odd,
        verdict=Verdict.UNKNOWN,
        message=odd,
        candidates=[odd],
        story=odd,
        attempts=1,
    )
    report = Report(
        name=odd,
        summary=Summary(
            to_do=0, sending=0, verdicts={Verdict.UNKNOWN: 1}, secrets_lost=0
        ),
        operations={odd: Counter({Verdict.UNKNOWN: 1})},
        faults=Counter({odd: 1}),
        groups=groups_of_results([unknown]),
    )
    page = page_of(report)
    assert "<i>" not in page
    assert page.count("&lt;i&gt;&#x27;&quot;$name&amp;") == 9


def test_page_names_lost_secrets():
    """It names the write and the webhook of each."""
    lost = [
        Result(
            key=f"row {number}",
            operation="webhooks.create",
            verdict=Verdict.APPLIED,
            thing=f"wh_{number}",
        )
        for number in range(2)
    ]
    report = Report(
        name="run",
        summary=Summary(to_do=0, sending=0, verdicts={Verdict.APPLIED: 5}),
        lost=5,
        operations={"webhooks.create": Counter({Verdict.APPLIED: 5})},
        faults=Counter(),
        groups=[],
        secrets_lost=lost,
    )
    page = page_of(report)
    assert "Secrets lost" in page
    assert all(
        f"row {number}" in page and f"wh_{number}" in page for number in range(2)
    )


def run_of(pid, begun, at, *pauses, ended=True):
    """Return a process; times in s."""
    told = [
        Pause(begun=1000 * from_, ended=1000 * to, why="the service answers HTTP 503")
        for from_, to in pauses
    ]
    return Status(
        host="one", pid=pid, begun=1000 * begun, at=1000 * at, ended=ended, pauses=told, limited_by=None,
        is_paused=False, next_probe=None, seconds={},
    )  # fmt: skip


def test_times_in_which_nothing_was_sent():
    """They do not count for the rate; the page shades them, and says when a process began, paused and was killed."""
    report = Report(
        name="run.db",
        summary=Summary(verdicts={Verdict.APPLIED: 300}),
        slices=[Slice(1000 * second, Counter({Verdict.APPLIED: 10})) for second in range(100, 130)],
        runs=[
            run_of(7, 100, 104, ended=False), run_of(8, 110, 120, (112, 117)), run_of(9, 118, 130), run_of(10, 119, 119),
        ],
    )  # fmt: skip
    assert report.active == [(100_000, 104_000), (110_000, 112_000), (117_000, 130_000)]
    assert (report.active_seconds, report.seconds, report.rate) == (
        19.0,
        30.0,
        300 / 19,
    )
    page = page_of(report)
    assert "16 a second while it ran: 19 s of 30 s" in page
    assert page.count('<i class="still"') == 2
    assert page.count('<i class="kill"') == 1
    assert (
        "<td>paused for 5 s: the service answers HTTP 503 (one, process 8)</td>" in page
    )
    assert (
        "1970-01-01 00:01:44</td><td>ended without saying so, killed or with its machine: one, process 7"
        in page
    )
    assert "00:01:44, 6 s: no process ran" in page
    # 19 s with sends have three quarters of the axis, and 11 s without have the rest
    assert re.findall(r'class="time" style="left:[\d.]+%">([\d:]+)<', page) == [
        "00:01:40", "00:01:48", "00:01:57", "00:02:03", "00:02:10",
    ]  # fmt: skip
    assert "drawn narrower than the rest" in page
    assert (
        Report(name="outbox.db", summary=Summary(verdicts={Verdict.APPLIED: 9})).rate
        == 0.0
    )


@pytest.mark.parametrize(
    ("seconds", "times"),
    [
        (1, ["00:00:00", "00:00:01"]),
        (2, ["00:00:00", "00:00:01", "00:00:02"]),
        (6, ["00:00:00", "00:00:02", "00:00:04", "00:00:06"]),
        (7, ["00:00:00", "00:00:07"]),
        (8, ["00:00:00", "00:00:02", "00:00:04", "00:00:06", "00:00:08"]),
    ],
)
def test_times_of_a_short_run(seconds, times):
    """Below the timeline they are whole seconds at their places; none is written twice."""
    sent = [Slice(1000 * at, Counter({Verdict.APPLIED: 1})) for at in range(seconds)]
    page = page_of(Report(name="run.db", summary=Summary(), slices=sent))

    assert re.findall(r'class="time" style="left:[\d.]+%">([\d:]+)<', page) == times


def test_processes_that_ran_before_the_first_verdict():
    """Their time is a part of the whole, which is not less than the time in which they ran."""
    counts = Counter({Verdict.APPLIED: 10})
    report = Report(
        name="run.db",
        summary=Summary(verdicts=counts),
        slices=[Slice(8_000, counts)],
        runs=[run_of(7, 0, 9)],
    )

    assert "1 a second while it ran: 9 s of 9 s" in page_of(report)


def test_slices_are_chosen_for_times_with_sends():
    """A pause makes them no wider; without verdicts there are none, and there are not many more in any case."""
    seconds = {
        1000 * second: Slice(1000 * second, Counter({Verdict.APPLIED: 1}), faults=1)
        for second in [*range(60), *range(100_000, 100_180)]
    }
    paused = Report(
        name="run.db",
        summary=Summary(),
        runs=[run_of(7, 0, 100_180, (60, 100_000))],
    )
    slices = slices_of(paused, seconds)
    assert paused.width == 2_000  # 240 s with sends in 120 slices
    assert len(slices) == 120
    assert sum(each.verdicts.total() for each in slices) == 240
    assert sum(each.faults for each in slices) == 240
    assert slices[30].begun == 100_000_000

    short = Report(name="run.db", summary=Summary(), runs=[run_of(7, 0, 2)])
    many = {each: Slice(each) for each in range(0, 1_000_000, 1_000)}
    assert len(slices_of(short, many)) <= 120


async def test_page_shows_faults_only_where_there_were_any(
    journal, service, client, tmp_path
):
    """The line of faults stands over a timeline that has some, and over no other."""
    found = await report(journal)
    assert found.faults == {"HTTP 403": 1, "HTTP 500": 1, "ResponseLostError": 2}
    assert "polyline" in page_of(found)

    sound = client.webhooks.update(service.seed_webhook().id, description="sound")
    await run_all(tmp_path / "sound.db", client, [sound])
    assert "polyline" not in page_of(await report(tmp_path / "sound.db"))


@pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")
async def test_page_in_a_browser(journal, tmp_path):
    """A browser renders the counts, the timeline's bars and the unknown write."""
    file = tmp_path / "report.html"
    file.write_text(page_of(await report(journal)), encoding="utf-8")
    async with browser(tmp_path / "profile") as page:
        await page.open(file.as_uri())
        text = await page.run("document.body.textContent")
        assert "4 writes" in text
        assert "odd <key>" in text
        assert await page.run("document.querySelectorAll('rect').length") >= 2


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")
@pytest.mark.parametrize("width", [390, 1700])
async def test_page_fits_its_window(tmp_path, width):
    """Long keys, messages and stories are wrapped, also in groups that are opened."""
    results = [
        Result(key="k" * 400, operation="webhooks.create", verdict=verdict, message="m" * 900, error="e" * 900, story="s" * 900)
        for verdict in (Verdict.UNKNOWN, Verdict.REFUSED)
    ]  # fmt: skip
    counts = {"webhooks.create": Counter({Verdict.UNKNOWN: 1_000_000})}
    report = Report(
        name="run.db",
        summary=Summary(),
        operations=counts,
        groups=groups_of_results(results),
    )
    (tmp_path / "page.html").write_text(
        page_of(report).replace("<details", "<details open"), encoding="utf-8"
    )
    async with browser(tmp_path / "profile") as page:
        await page.open((tmp_path / "page.html").as_uri(), width, 900)
        assert await page.run(FITS)


def long_report():
    """Return a report with large numbers, and a pause that lasts ten times as long as what was sent."""
    sent = [*range(100), *range(1_100, 1_200)]
    counts = Counter({Verdict.APPLIED: 1_234_567, Verdict.REFUSED: 12_345})
    return Report(
        name="run.db",
        summary=Summary(verdicts=counts, secrets_lost=2),
        operations={"sheets.save_mapping": counts, "webhooks.create": counts},
        slices=[
            Slice(1000 * second, Counter({Verdict.APPLIED: 10}), second % 3)
            for second in sent
        ],
        runs=[run_of(7, 0, 1_200, (100, 1_100))],
        faults=Counter({"HTTP 503": 812, "ResponseLostError": 93}),
        groups=groups_of_results(
            [
                Result(
                    key="row-1",
                    operation="webhooks.create",
                    verdict=Verdict.REFUSED,
                    message="url is not https",
                )
            ]
        ),
    )


ROWS = [
    ("changed", "inv-2026-0013", "13", "total", "1234567890.12", "1234567890.13"),
    ("only in the service", "3f2b8c1a-1d2e-4f5a-9b8c-123456789abc", "1234", "", "", ""),
    ("changed", "inv 14", "14", "customer.name", "a long name " * 9, "another name"),
]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("kind", ["report", "listing"])
async def test_numbers_and_titles_stay_whole(tmp_path, width, kind):
    """No number, word or title of a table is broken inside, and the page fits its window."""
    titles = ("difference", "key", "line", "field", "yours", "theirs")
    page_text = (
        page_of(long_report()).replace("<details", "<details open")
        if kind == "report"
        else listing_page("Rows", "words", [("rows", 1_234_567)], titles, ROWS)
    )
    (tmp_path / "page.html").write_text(page_text, encoding="utf-8")
    async with browser(tmp_path / "profile") as page:
        await page.open((tmp_path / "page.html").as_uri(), width, 900)
        assert await page.run(BROKEN) == []
        assert await page.run(FITS)
        if kind == "listing" and width < 600:
            label = "getComputedStyle(document.querySelectorAll('td')[2], '::before')"
            assert await page.run(f"{label}.content") == '"line: "'


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")
@pytest.mark.parametrize("width", [390, 1280])
async def test_timeline_can_be_read(tmp_path, width):
    """Its labels have the size of text on every screen, do not overlap, and a pause takes a quarter of it."""
    (tmp_path / "page.html").write_text(page_of(long_report()), encoding="utf-8")
    async with browser(tmp_path / "profile") as page:
        await page.open((tmp_path / "page.html").as_uri(), width, 900)
        sizes = await page.run(
            "[...document.querySelectorAll('.rate, .time')].map(each => parseFloat(getComputedStyle(each).fontSize))"
        )
        assert min(sizes) >= 11
        assert await page.run("document.querySelector('.plot svg text') === null")
        boxes = await page.run(
            "[...document.querySelectorAll('.time')].map(each => each.getBoundingClientRect())"
            ".filter(each => each.width).map(each => [each.left, each.right, each.height])"
        )
        assert len(boxes) >= 3
        assert all(left[1] < right[0] for left, right in pairwise(boxes))
        assert all(height < 30 for _, _, height in boxes)
        share = await page.run(
            "document.querySelector('i.still').offsetWidth / document.querySelector('.plot').offsetWidth"
        )
        assert share == pytest.approx(0.25, abs=0.02)


def test_colours_of_all_pages() -> None:
    """A verdict has one colour on the report and on the pages that are served, light and dark."""
    pages = Path(invsvc_async.__file__).parent
    report = (pages / "batch/reports/report.html").read_text()
    served = (pages / "simulator/loopback_page.css").read_text()
    for verdict in Verdict:
        name = str(verdict).replace(" ", "-")
        found = re.findall(rf"--{name}: (#[0-9a-f]{{6}})", report)
        assert len(found) == 2
        assert found == re.findall(rf"--{name}: (#[0-9a-f]{{6}})", served)
