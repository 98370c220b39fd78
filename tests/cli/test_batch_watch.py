"""`invsvc batch watch`: the command, who may open its page, and the page in a real browser."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import webbrowser
from contextlib import nullcontext
from types import SimpleNamespace
from unittest.mock import AsyncMock

import aiohttp
import attrs
import pytest

from invsvc_async.batch import Batch
from invsvc_async.batch.reports import live
from invsvc_async.batch.run_status import Status
from invsvc_async.cli import page_serving
from invsvc_async.cli.commands import stores as commands
from invsvc_async.cli.commands.stores import BATCH, StoreOptions
from invsvc_async.cli.output import as_json
from invsvc_async.simulator.loopback_page import local
from tests.batch.conftest import client_of
from tests.batch.reports.test_live import mixed, read
from tests.batch.writing import all_of, creates
from tests.cli.conftest import child
from tests.durable.stores import spoil
from tests.support.browser import CHROMIUM, FITS, browser
from tests.support.waiting import until

pytestmark = pytest.mark.one_python


@pytest.fixture
async def client(service):
    async with client_of(service) as made:
        yield made


class Watching:
    """The page of a watch that runs in this process."""

    def __init__(self, journal, *, port=0):
        as_json.set(True)
        self.running = asyncio.create_task(
            commands.watch(StoreOptions(str(journal), BATCH), port=port, open_=False)
        )

    async def address(self, capsys):
        def printed():
            assert not self.running.done(), self.running.result()
            return capsys.readouterr().out

        return json.loads(await until(printed))["watch_url"]

    async def stop(self):
        self.running.cancel()
        await asyncio.wait([self.running])


@pytest.fixture
async def watched(client, tmp_path, capsys):
    """Give the address of the page of a small finished batch, a third of which was refused."""
    async with Batch.open(tmp_path / "run.db", client) as batch:
        await all_of(batch, mixed(client, 30))
    watching = Watching(tmp_path / "run.db")
    yield await watching.address(capsys)
    await watching.stop()


async def asked(url, **options):
    """Return the status and the text of an answer."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, **options) as answer,
    ):
        return answer.status, await answer.text()


async def test_data(watched):
    """It has the counts, the state and the failures by cause."""
    told = json.loads((await asked(f"{watched}data"))[1])

    assert (told["state"], told["done"], told["expected"], told["open_inputs"]) == (
        "finished",
        30,
        30,
        0,
    )
    assert told["verdicts"] == {"applied": 20, "refused": 10}
    assert [
        (each["verdict"], each["count"], len(each["writes"])) for each in told["groups"]
    ] == [("refused", 10, 5)]
    assert (told["workers"], told["limits"]) == (None, [])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
async def test_page_and_other_sites(watched, headers, status):
    """Neither the page nor its data can be read through a page of another site."""
    for path in ("", "data"):
        assert (await asked(watched + path, headers=headers))[0] == status


async def test_address_cannot_be_guessed(watched):
    """Other users of this machine would need the random part of the address."""
    root = "/".join(watched.split("/")[:3])
    assert root.startswith("http://127.0.0.1:")
    assert len(watched) > len(root) + 20
    for path in ("/", "/data", "/watch/"):
        assert (await asked(root + path))[0] == 404


async def test_page_loads_nothing(watched):
    """The page may load nothing, and shows no style or script of others."""
    async with aiohttp.ClientSession() as session, session.get(watched) as answer:
        policy, text = answer.headers["Content-Security-Policy"], await answer.text()

    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    text = text.replace("http://www.w3.org/2000/svg", "")
    assert not [
        each
        for each in ("http://", "https://", "SHARED_STYLE", "NONCE")
        if each in text
    ]


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (
            "UPDATE entries SET state = 0, verdict = NULL, done_at = NULL WHERE seq = 1",
            "running",
        ),
        ("DELETE FROM entries", "empty"),
    ],
)
async def test_state_in_a_word(client, tmp_path, change, state):
    """A batch with open writes runs if its file was changed lately; one without writes is empty."""
    async with Batch.open(tmp_path / "run.db", client) as batch:
        await all_of(batch, creates(client, 3))
    spoil(tmp_path / "run.db", change)

    assert (await read(tmp_path / "run.db"))["state"] == state


async def test_requests_of_other_machines():
    """They are refused, whatever address the server listens on."""
    checked = local(AsyncMock(return_value="the page"))

    assert (await checked(SimpleNamespace(remote="192.0.2.7"))).status == 403
    assert (
        await checked(
            SimpleNamespace(remote="127.0.0.1", host="127.0.0.1:80", headers={})
        )
        == "the page"
    )


async def test_batch_that_nothing_runs(client, tmp_path, monkeypatch):
    """Open writes without a recent change are said to wait, and not to run."""
    monkeypatch.setattr(live, "_QUIET", -1.0)
    async with Batch.open(tmp_path / "run.db", client) as batch:
        run = batch.run(creates(client, 400))
        await anext(run)
    told = await read(tmp_path / "run.db")

    assert told["state"] == "quiet"
    assert told["seconds"] >= 0


async def test_journal_that_cannot_be_read_for_a_while(watched, tmp_path):
    """The page says so, and goes on by itself."""
    (tmp_path / "run.db").rename(tmp_path / "away.db")

    async def problem():
        return json.loads((await asked(f"{watched}data"))[1]).get("problem")

    assert "run.db" in await until(problem, within=300.0)


def test_command(tmp_path, monkeypatch, capsys):
    """It prints the address, ends with 0 on a signal, and names what is wrong otherwise."""
    sqlite3.connect(tmp_path / "run.db").close()
    from invsvc_async.cli.app import run

    assert run(["batch", "watch", str(tmp_path / "none.db")]) == 1
    assert run(["batch", "watch", str(tmp_path / "run.db")]) == 1
    assert "has no journal yet" in capsys.readouterr().err


@pytest.mark.slow
async def test_process(client, tmp_path):
    """In a process of its own it prints the address, and ends with 0 on Ctrl-C."""
    async with Batch.open(tmp_path / "run.db", client) as batch:
        await all_of(batch, creates(client, 1))
    process = child("batch", "watch", str(tmp_path / "run.db"), "--no-open")
    out = [await asyncio.to_thread(process.stdout.readline) for _ in range(3)]
    status, _ = await asked(out[1].split()[1])
    process.send_signal(signal.SIGINT)
    rest = await asyncio.to_thread(process.communicate, timeout=300)

    assert "run.db" in out[0]
    assert (status, out[2].split()[1]) == (200, f"{out[1].split()[1]}data")
    assert (process.returncode, rest) == (0, ("", ""))


async def test_port_that_is_taken(client, tmp_path, watched, capsys):
    """It is named."""
    port = int(watched.split(":")[2].split("/")[0])
    watching = Watching(tmp_path / "run.db", port=port)
    await asyncio.wait([watching.running])

    assert "--port" in str(watching.running.exception())


async def test_browser_is_opened(client, tmp_path, monkeypatch, capsys):
    """With a screen, the page is opened; without one, a browser for terminals would take over this one."""
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    async with Batch.open(tmp_path / "run.db", client) as batch:
        await all_of(batch, creates(client, 1))
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    stopped = asyncio.Event()
    stopped.set()
    # reaches: a command that is told to stop, without a signal to the tests
    monkeypatch.setattr(page_serving, "stopping", lambda: nullcontext(stopped))
    for display, many in (("", 0), (":0", 1)):
        monkeypatch.setenv("DISPLAY", display)
        await commands.watch(StoreOptions(str(tmp_path / "run.db"), BATCH))
        assert len(opened) == many
        out = capsys.readouterr().out
        assert "watch_url   http://127.0.0.1:" in out
        assert "/data (as JSON)" in out
        assert all(len(line) <= 80 for line in out.splitlines()[1:])  # the addresses


# --- in a browser


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")
async def test_page_in_a_browser(client, tmp_path, capsys):
    """It shows counts live, a pause, and failures, whose texts are not markup; it fits a phone."""
    key = "<img src=x onerror=document.title='hacked'>"
    async with Batch.open(tmp_path / "run.db", client) as batch:
        write = client.webhooks.update("wh_none", description="x").keyed(key)
        await all_of(batch, [*creates(client, 3), write])
        watching = Watching(tmp_path / "run.db")
        address = await watching.address(capsys)
        async with browser(tmp_path / "profile") as page:
            await page.open(address)
            await page.until("document.getElementById('live').textContent === 'live'")
            assert await page.run(
                "document.getElementById('numbers').textContent.includes('4 of 4')"
            )
            assert await page.run("document.getElementById('state').textContent") == (
                "finished; some writes are not applied"
            )
            assert "was finished before" in await page.run(
                "document.getElementById('chart').textContent"
            )
            await page.run("document.querySelector('summary').click()")
            assert key in await page.run(
                "document.querySelector('details li').textContent"
            )

            await all_of(batch, creates(client, 3, start=3))
            away = "the service answers HTTP 503"
            pause = attrs.evolve(
                batch.progress, paused=away, limited_by=away, next_probe=40.0
            )
            Status.of_this_process().store(batch.entries, pause)
            words = await page.until("document.querySelector('.pause')?.textContent")
            assert words.startswith(
                "Paused: the service answers HTTP 503. Next probe in "
            )
            Status.of_this_process().store(
                batch.entries, attrs.evolve(pause, limited_by=None)
            )
            await page.until("document.querySelector('.pause') === null")
            await page.until(
                "document.querySelector('#legend .is-applied').textContent === 'applied: 6'"
            )
            assert await page.run("document.querySelector('details').open")
            await page.until("document.querySelector('#chart svg') !== null")

            await page.open(address, 390, 800)
            await page.until("document.getElementById('live').textContent === 'live'")
            assert await page.run(FITS)
            await watching.stop()
            await page.until(
                "document.getElementById('live').textContent.includes('does not answer')"
            )
            assert await page.run("document.title") != "hacked"
    assert [
        each for each in page.messages if "ERR_CONNECTION_REFUSED" not in each
    ] == []
