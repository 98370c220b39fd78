"""The pages of `invsvc console` in a real browser: what a person sees, clicks and confirms."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from invsvc_async import events
from invsvc_async.batch import Batch
from invsvc_async.cli.store_options import JOURNAL, StoreOptions
from invsvc_async.durable.resolve import resolution, resolve
from invsvc_async.events.stores import open_store
from invsvc_async.simulator import loopback_page
from tests.batch.conftest import client_of
from tests.batch.writing import all_of, creates
from tests.cli.console_scenes import EVIL, fill_journal
from tests.cli.opened_console import running_console
from tests.support.browser import CHROMIUM, browser

pytestmark = [
    pytest.mark.one_python,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed"),
]

FITS = "document.documentElement.scrollWidth <= innerWidth"
LIVE = "document.getElementById('live')?.textContent === 'live'"


class Person:
    """What a person does with the page."""

    def __init__(self, page):
        self.page = page

    async def open(self, url, *size):
        await self.page.open(url, *size)
        await self.page.until(LIVE)

    async def click(self, where):
        """Click what a selector finds, once it is there."""
        await self.page.until(f"document.querySelector({json.dumps(where)}) !== null")
        await self.page.run(f"document.querySelector({json.dumps(where)}).click()")

    async def select(self, text):
        """Click the line of the list that has *text*."""
        found = f"[...document.querySelectorAll('#rows tr')].find(each => each.textContent.includes({json.dumps(text)}))"
        await self.page.until(f"{found} !== undefined")
        await self.page.run(f"{found}.click()")
        await self.page.until("document.querySelectorAll('#facts dt').length > 0")

    async def type(self, name, text):
        await self.page.run(
            f"document.getElementById('{name}').value = {json.dumps(text)}"
        )

    async def read(self, name):
        return await self.page.run(f"document.getElementById('{name}').textContent")

    async def change(self, change):
        """Click a change of the one that is shown, and wait for the question."""
        await self.click(f"#changes button[data-change={change}]")
        await self.page.until("document.getElementById('question').open")

    async def confirm(self):
        """Confirm the question, and return what the page then says."""
        await self.click("#yes")
        await self.page.until("!document.getElementById('question').open")
        return await self.page.until("document.getElementById('said').textContent")


@asynccontextmanager
async def person_at(folder):
    async with browser(folder / "profile") as page:
        yield Person(page)


async def resolved_in_browser(service, folder):
    """Look at a journal, resolve what is unknown, and see it as such; nothing is sent, and no text is markup."""
    path = await fill_journal(service, folder)
    async with client_of(service, journal=str(path)) as client:
        await client.webhooks.delete("wh_none").keyed(EVIL).outcome()
    arrived = len(service.ledger.entries)
    async with running_console(path) as url, person_at(folder) as person:
        page = person.page
        await person.open(url)
        await page.until("document.querySelectorAll('#rows tr').length === 4")
        assert await page.run("document.querySelectorAll('img').length") == 0
        assert "4 in all" in await person.read("count")
        await person.select(EVIL)
        assert await page.until("document.getElementById('shown-title').textContent") == EVIL  # fmt: skip
        assert await page.run("document.querySelectorAll('img').length") == 0

        await person.select("unknown")
        await page.until("document.getElementById('shown-title').textContent === 'unknown'")  # fmt: skip
        await person.click("#changes button[data-change=resolve]")
        await person.click("#finding-next")
        assert await person.read("finding-problem") == "Say whether it was applied."
        await person.click("#applied")
        await person.click("#finding-next")
        await page.until(
            "document.getElementById('finding-problem').textContent !== 'Say whether it was applied.'"
        )
        assert "because: must say" in await person.read("finding-problem")
        await person.type("of", "conn_1")
        await person.type("because", EVIL)
        await person.type("by", "ann")
        await person.click("#finding-next")
        await page.until("document.getElementById('question').open")
        assert "applied, of conn_1" in await person.read("will")
        assert EVIL in await person.read("will")
        assert "unknown" in await person.read("now")
        said = await person.confirm()
        assert said == f"unknown: applied: ann found that it was applied: {EVIL}"
        await page.until(
            "document.getElementById('facts').textContent.includes('person')"
        )
        states = "[...document.querySelectorAll('#rows tr')].map(each => each.querySelector('.state').textContent)"
        await page.until(f"{states}.filter(each => each === 'applied').length === 2")
        assert await page.run("document.title") == "Console"
        assert await page.run("document.querySelectorAll('img').length") == 0
        assert await page.run(FITS)
        # the answer to what said too little
        assert all("status of 400" in each for each in page.messages)
    assert len(service.ledger.entries) == arrived
    async with client_of(service, journal=str(path)) as client:
        outcome = await client.outcome_of("unknown")
        assert outcome.evidence.person.because == EVIL
        again = client.sheets.save_mapping({"a": "private"}).keyed("unknown")
        assert (await again.outcome()).replayed
    assert len(service.ledger.entries) == arrived


async def test_resolve(service, tmp_path):
    """From the list to the stored verdict, which every later run then has."""
    await resolved_in_browser(service, tmp_path)


@contextmanager
def page_with(right, wrong):
    """Serve the page with one line changed."""
    files = loopback_page.files

    def changed(package):
        folder = files(package)

        def joinpath(name):
            text = folder.joinpath(name).read_text(encoding="utf-8")
            if name == "page.html":
                assert text.count(right) == 1
                text = text.replace(right, wrong)
            return SimpleNamespace(read_text=lambda **_: text)

        return SimpleNamespace(joinpath=joinpath)

    # reaches: the page is no module, which a mutant in a list would have to be
    with patch.object(loopback_page, "files", changed):
        yield


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (
            '  made.append(...children.map(each => each ?? ""));',
            "  for (const each of children) typeof each === 'object' && each ? made.append(each) : made.innerHTML += each ?? '';",
        ),
        (
            "if (element.textContent !== words) element.textContent = words;",
            "if (element.textContent !== words) element.innerHTML = words;",
        ),
        ('"X-Page-Session": SESSION', '"X-Page-Session": ""'),
    ],
    ids=["markup in a list", "markup in a text", "no session"],
)  # fmt: skip
async def test_page_with_a_mistake(service, tmp_path, right, wrong):
    """Each is noticed by what a person sees."""
    with page_with(right, wrong), pytest.raises((AssertionError, TimeoutError)):
        await resolved_in_browser(service, tmp_path)


async def test_change_after_the_question(service, tmp_path):
    """A click on a question whose state has changed meanwhile does nothing, and says so."""
    path = await fill_journal(service, tmp_path)
    async with running_console(path) as url, person_at(tmp_path) as person:
        await person.open(url)
        await person.select("unknown")
        await person.change("retry")
        assert "settled by reads first" in await person.read("will")
        async with StoreOptions(str(path), JOURNAL).opened() as entries:
            name = await entries.named("unknown")
            await resolve(entries.store, name, resolution(False, "looked", "bob"))
        said = await person.confirm()
        assert "It has changed since you were asked" in said
        assert await person.page.run("document.getElementById('said').className") == "whole bad"  # fmt: skip
        await person.page.until(
            "document.getElementById('facts').textContent.includes('bob found')"
        )
        # its last messages are those of the answers that refuse
        assert all("409" in each for each in person.page.messages)


async def test_batch_on_a_phone(service, tmp_path):
    """Several lines are chosen and retried at once; the views fit a phone, and lead to the page that watches."""
    async with client_of(service) as client:
        async with Batch.open(tmp_path / "run.db", client) as batch:
            refused = [
                client.webhooks.delete("wh_none").keyed(f"gone-{n}") for n in range(3)
            ]
            await all_of(batch, [*creates(client, 3), *refused])
        async with running_console(tmp_path / "run.db") as url, person_at(tmp_path) as person:  # fmt: skip
            page = person.page
            await person.open(url, 390, 800)
            await page.run(
                "{const it = document.getElementById('state'); it.value = 'refused'; it.dispatchEvent(new Event('change'))}"
            )
            await page.until("document.querySelectorAll('#rows tr').length === 3")
            assert await page.run(FITS)
            for number in (1, 2):
                await person.click(f"#rows tr:nth-child({number}) input")
            await person.click("#chosen button[data-change=retry]")
            await page.until("document.getElementById('question').open")
            assert await person.read("question-title") == "Do 2 writes again?"
            assert await page.run("document.querySelectorAll('#now h3').length") == 2
            assert await page.run(FITS)
            assert await person.confirm() == "2 writes to be done again."
            await page.until("document.querySelectorAll('#rows tr').length === 1")
            for view, words in (("report", "webhooks.create"), ("list", "gone-")):
                await person.click(f"#views a[data-view={view}]")
                await page.until(f"document.body.innerText.includes('{words}')")
                assert await page.run(FITS)
            link = "document.querySelector('#views a[data-view=watch]').href"
            assert await page.run(link) == f"{url}watch/"
            await person.open(f"{url}watch/", 390, 800)
            assert await page.run(FITS)
            back = "document.getElementById('console')"
            assert await page.run(f"!{back}.hidden && {back}.href") == url
            assert page.messages == []
        async with Batch.open(tmp_path / "run.db", client) as batch:
            before = len(service.ledger.entries)
            await all_of(batch, [])
            assert len(service.ledger.entries) - before == 2


async def test_events_in_a_browser(tmp_path):
    """A dead letter is revived and another deleted; their texts are not markup, and control characters visible."""
    where = str(tmp_path / "events.db")
    store = open_store(where)
    for key in ("one", "two"):
        delivery = events.Delivery(
            key=key,
            type="invoice.created",
            body=json.dumps({"name": EVIL}).encode() + b"\x1b[2J",
        )
        await store.bury(delivery, reason=f"{EVIL} \u202e {key}")
    async with running_console(where) as url, person_at(tmp_path) as person:
        page = person.page
        await person.open(url)
        await person.select("one")
        assert EVIL in await person.read("body")
        assert "\\x1b[2J" in await person.read("body")
        assert "\\u202e" in await person.read("rows")
        await person.change("revive")
        assert await person.confirm() == "1 event revived."
        await page.until("document.querySelectorAll('#rows tr').length === 1")
        await person.select("two")
        await page.until("document.getElementById('facts').textContent.includes('two')")
        await person.change("drop")
        assert await person.confirm() == "1 event dropped."
        await page.until("document.querySelectorAll('#rows tr').length === 0")
        assert await page.run("document.title") == "Console"
        assert await page.run("document.querySelectorAll('img').length") == 0
        assert page.messages == []
    [due] = await store.take(limit=9, lease=10)
    await store.close()
    assert due.key == "one"


async def test_console_that_is_closed(service, tmp_path):
    """The page says that nothing answers any more."""
    path = await fill_journal(service, tmp_path)
    async with person_at(tmp_path) as person:
        async with running_console(path) as url:
            await person.open(url)
        await person.page.until(
            "document.getElementById('live').textContent.includes('does not answer')"
        )
