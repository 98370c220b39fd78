"""What a console must refuse, and what it may show: each scene is run by a test, and by mutants."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from invsvc_async.batch import Batch
from invsvc_async.cli.console.confirmations import Change, Questions
from invsvc_async.cli.store_options import JOURNAL, StoreOptions
from invsvc_async.durable.resolve import resolution, resolve
from invsvc_async.errors import JournalError
from invsvc_async.events.stores import open_store
from invsvc_async.simulator.loopback_acts import ActRefusedError, Sessions
from tests.batch.conftest import client_of
from tests.cli.opened_console import Page, Told, console_page, running_console
from tests.cli.test_events import fill

if TYPE_CHECKING:
    from pathlib import Path

    from invsvc_async.simulator import Simulator

FINDING = {"applied": True, "of": "conn_1", "because": "seen in the dashboard"}
EVIL = "<img src=x onerror=document.title='hacked'>"


async def fill_journal(service: Simulator, folder: Path) -> Path:
    """Make a journal with a write of each sort, under the name of its sort."""
    path = folder / "journal.db"
    service.script("webhooks.update", "403")
    service.script("sheets.save_mapping", "apply, then reset")
    async with client_of(service, journal=str(path)) as client:
        hook = service.seed_webhook().id
        for key in ("refused", "applied"):
            write = client.webhooks.update(hook, description="private").keyed(key)
            await write.outcome()
        await client.sheets.save_mapping({"a": "private"}).keyed("unknown").outcome()
    return path


async def asked_to_resolve(page: Page) -> Told:
    """Ask to resolve the unknown write."""
    asked = await page.ask("resolve", await page.named("unknown"), **FINDING)
    assert asked.status == 200, asked
    return asked


async def state_of(page: Page, key: str) -> str:
    """Return the state of the write under *key*."""
    return (await page.rows())[key]["state"]


# --- who may ask


async def address_is_secret(service: Simulator, folder: Path) -> None:
    # Without the random part of the address there is nothing; each console has its own.
    path = await fill_journal(service, folder)
    async with console_page(path) as page, running_console(path) as other:
        root = "/".join(page.url.split("/")[:3])
        assert root.startswith("http://127.0.0.1:")
        secret, others = (url.split("/")[3] for url in (page.url, other))
        assert len(secret) >= 20
        assert secret != others
        for part in ("", "data", f"{others}/", f"{others}/data"):
            async with page.http.get(f"{root}/{part}") as answer:
                assert answer.status == 404


async def other_sites(service: Simulator, folder: Path) -> None:
    # Neither a page of another site nor a name that it points here can read or ask anything.
    path = await fill_journal(service, folder)
    async with console_page(path) as page:
        asked = await asked_to_resolve(page)
        for header in (
            {"Host": "evil.example"},
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
        ):
            for part in ("", "data?view=about", "watch/", "watch/data"):
                assert (await page.get(part, headers=header)).status == 403
            token = {"confirmation": asked.body["confirmation"]}
            assert (await page.post("ask", {}, **header)).status == 403
            assert (await page.post("confirm", token, **header)).status == 403
        async with page.http.options(page.url + "confirm") as answer:
            assert answer.status == 405
        for part in ("", "data?view=about"):
            async with page.http.get(page.url + part) as answer:
                assert not [
                    name for name in answer.headers if name.startswith("Access-Control")
                ]
        assert await state_of(page, "unknown") == "unknown"


async def only_post(service: Simulator, folder: Path) -> None:
    # A link asks for nothing, and confirms nothing.
    path = await fill_journal(service, folder)
    async with console_page(path) as page:
        asked = await asked_to_resolve(page)
        query = {"confirmation": asked.body["confirmation"]}
        for method in ("GET", "HEAD", "PUT", "DELETE"):
            for act in ("ask", "confirm"):
                async with page.http.request(
                    method, page.url + act, params=query,
                    json=query, headers={"X-Page-Session": page.token},
                ) as answer:  # fmt: skip
                    assert answer.status == 405
        assert await state_of(page, "unknown") == "unknown"


async def only_json(service: Simulator, folder: Path) -> None:
    # What a form can send is refused, as is what is no object, or too long.
    path = await fill_journal(service, folder)
    headers = {"X-Page-Session": ""}
    async with console_page(path) as page:
        asked = await asked_to_resolve(page)
        body = json.dumps({"confirmation": asked.body["confirmation"]})
        headers["X-Page-Session"] = page.token
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            async with page.http.post(
                page.url + "confirm",
                data=body,
                headers={**headers, "Content-Type": kind},
            ) as answer:
                assert answer.status == 400
        for wrong in ([], "x", None):
            assert (await page.post("confirm", wrong)).status == 400
        assert (await page.post("ask", {"x": "x" * (1 << 17)})).status == 413
        assert await state_of(page, "unknown") == "unknown"


async def session_is_needed(service: Simulator, folder: Path) -> None:
    # Who knows the address alone, or has the page of another console, changes nothing.
    path = await fill_journal(service, folder)
    async with console_page(path) as page, console_page(path) as other:
        asked = await asked_to_resolve(page)
        token = {"confirmation": asked.body["confirmation"]}
        for wrong in ("", "x", other.token, page.token[:-1]):
            stranger = Page(page.http, page.url)
            stranger.token = wrong
            assert (await stranger.post("confirm", token)).status == 403
            assert (await stranger.ask("drop", "x")).status == 403
        assert await state_of(page, "unknown") == "unknown"
        assert (await page.confirm(asked)).status == 200


async def session_ends(service: Simulator, folder: Path) -> None:
    # A session ends when it was not used for long, and the oldest when there are too many.
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    token = sessions.begin()
    assert len(token) >= 32
    now[0] = 11 * 3600.0
    assert sessions.goes_on(token)
    now[0] += 11 * 3600.0
    assert sessions.goes_on(token)
    now[0] += 13 * 3600.0
    assert not sessions.goes_on(token)
    first, *others = [sessions.begin() for _ in range(33)]
    assert not sessions.goes_on(first)
    assert all(map(sessions.goes_on, others))


# --- what is confirmed


async def confirmation_of_another(service: Simulator, folder: Path) -> None:
    # What one page was asked, another one cannot confirm.
    path = await fill_journal(service, folder)
    async with console_page(path) as page:
        other = await page.another()
        asked = await asked_to_resolve(page)
        assert (await other.confirm(asked)).status == 409
        assert await state_of(page, "unknown") == "unknown"
        assert (await page.confirm(asked)).status == 200
        assert await state_of(page, "unknown") == "applied"


async def confirmation_is_needed(service: Simulator, folder: Path) -> None:
    # To ask changes nothing, and a token that nobody was given confirms nothing.
    path = await fill_journal(service, folder)
    async with console_page(path) as page:
        await asked_to_resolve(page)
        for wrong in ({}, {"confirmation": None}, {"confirmation": "x"}):
            assert (await page.post("confirm", wrong)).status == 409
        assert await state_of(page, "unknown") == "unknown"


class Counted:
    """A console whose change counts how often it was done."""

    def __init__(self) -> None:
        self.done = 0

    async def data(self, query: object) -> dict[str, object]:
        raise AssertionError("nothing is read")

    async def change(self, asked: object) -> Change:
        async def do() -> str:
            self.done += 1
            return "done"

        return Change(title="t", will=["w"], button="b", now={}, do=do)


async def confirmation_is_for_once(service: Simulator, folder: Path) -> None:
    # A click that comes twice does it once, and one that comes too late does nothing.
    now = [0.0]
    counted = Counted()
    questions = Questions(counted, lambda: now[0])
    asked = await questions.ask("s", {})
    now[0] = 299.0
    await questions.confirm("s", asked)
    with pytest.raises(ActRefusedError, match="already"):
        await questions.confirm("s", asked)
    assert counted.done == 1
    late = await questions.ask("s", {})
    now[0] += 301.0
    with pytest.raises(ActRefusedError, match="too long ago"):
        await questions.confirm("s", late)
    first = await questions.ask("s", {})
    for _ in range(100):
        await questions.ask("s", {})
    with pytest.raises(ActRefusedError):
        await questions.confirm("s", first)
    assert counted.done == 1


async def changed_meanwhile(service: Simulator, folder: Path) -> None:
    # What was changed since it was shown stays as it is, whoever changed it.
    path = await fill_journal(service, folder)
    async with console_page(path) as page:
        name = await page.named("unknown")
        refused = await page.named("refused")
        stale = [
            await asked_to_resolve(page),
            await page.ask("retry", name),
            await page.ask("drop", name),
            await page.ask("drop", refused, name),
        ]
        async with StoreOptions(str(path), JOURNAL).opened() as entries:
            await resolve(entries.store, name, resolution(False, "looked", "ann"))
        for asked in stale:
            told = await page.confirm(asked)
            assert told.status == 409
            assert "changed since" in told.body["problem"]
        shown = await page.shown(name)
        assert shown["state"] == "not applied"
        assert "ann found that it was not applied" in shown["facts"]["message"]
        assert await state_of(page, "refused") == "refused"


async def changed_event(service: Simulator, folder: Path) -> None:
    # An event that was changed since it was shown stays as it is.
    path = folder / "events.db"
    store = open_store(str(path))
    await fill(store)
    async with console_page(path) as page:
        stale = [await page.ask("revive", "1"), await page.ask("drop", "1")]
        [event] = await store.events(limit=1)
        assert await store.revive(event)
        for asked in stale:
            assert (await page.confirm(asked)).status == 409
        [event] = await store.events(limit=1)
        assert (event.state, event.body is None) == ("open", False)
    await store.close()


async def store_refuses_too(service: Simulator, folder: Path) -> None:
    # Between the last look and the change there is no gap: the store compares under its lock.
    path = await fill_journal(service, folder)
    async with StoreOptions(str(path), JOURNAL).opened() as entries:
        name = await entries.named("unknown")
        seen = await entries.entry(name)
        assert seen is not None
        finding = resolution(False, "looked", "ann")
        await resolve(entries.store, name, finding)
        other = resolution(True, "looked", "bob")
        with pytest.raises(JournalError, match="at the same time"):
            await resolve(entries.store, name, other, expected=seen)
        assert not await entries.drop(name, seen=seen)
        now = await entries.entry(name)
        assert now is not None
        assert now.verdict == "not applied"
        assert await entries.drop(name, seen=now)


async def not_for_its_state(service: Simulator, folder: Path) -> None:
    # A change that does not fit the state is refused before it is confirmed, and not offered.
    path = await fill_journal(service, folder)
    async with console_page(path) as page:
        applied = await page.named("applied")
        assert (await page.shown(applied))["changes"] == ["drop"]
        for change, more in (("retry", {}), ("resolve", FINDING)):
            told = await page.ask(change, applied, **more)
            assert told.status == 409
            assert "is not for a write that is applied" in told.body["problem"]
        assert (await page.ask("drop", "nowhere")).status == 409
        unknown = await page.named("unknown")
        for wrong in (
            {"change": "prune", "names": [unknown]},
            {"change": "retry", "names": []},
            {"change": "retry", "names": "unknown"},
            {"change": "retry", "names": [1]},
            {"change": "retry"},
            {"change": "retry", "names": ["x"] * 201},
            {"change": "resolve", "names": [unknown]},
            {"change": "resolve", "names": [unknown], "applied": "yes"},
            {"change": "resolve", "names": [unknown], "applied": True},
            {"change": "resolve", "names": [unknown, applied], **FINDING},
        ):
            told = await page.post("ask", wrong)
            assert told.status == 400, wrong


async def batch_keeps_what_is_done(service: Simulator, folder: Path) -> None:
    # A finished write of a batch is not dropped: its input would send it again.
    path = folder / "run.db"
    async with (
        client_of(service) as client,
        Batch.open(path, client) as batch,
    ):
        write = client.webhooks.delete("wh_none").keyed("refused")
        async for _ in batch.run([write]):
            pass
    async with console_page(path) as page:
        assert "drop" not in (await page.shown("refused"))["changes"]
        assert (await page.ask("drop", "refused")).status == 409


# --- what is shown


async def texts_are_visible(service: Simulator, folder: Path) -> None:
    # Control characters and changes of direction are shown, not obeyed.
    path = folder / "events.db"
    await fill(open_store(str(path)))
    async with console_page(path) as page:
        shown = await page.shown("1")
        texts = [
            json.dumps(await page.data("list", state="dead")),
            json.dumps(shown),
            json.dumps((await page.ask("revive", "1")).body),
        ]
        assert shown["facts"]["reason"] == "it\\x1b[2J broke"
        assert shown["body"] == '{"a": "\\x1b[2J\\u202e"}'
        for text in texts:
            # as JSON has them
            assert "\\u001b" not in text
            assert "\x1b" not in text


async def no_secrets(service: Simulator, folder: Path) -> None:
    # Neither the page nor its data has a token, a webhook's secret or the body of a write.
    path = await fill_journal(service, folder)
    async with client_of(service, journal=str(path), on_secret=lambda *_: None) as client:  # fmt: skip
        hook = await client.webhooks.create(
            url="https://me.example/in", events=["invoice.created"]
        ).keyed("made")
    secrets = {each.secret for each in service.book().receivers.values()}
    assert hook.secret in secrets
    async with console_page(path, service=service) as page:
        texts = [(await page.get()).body, (await page.get("watch/data")).body]
        views = [await page.data(view) for view in ("about", "list", "report")]
        texts += map(json.dumps, views)
        for key in ("made", "unknown", "refused"):
            name = await page.named(key)
            texts.append(json.dumps(await page.shown(name)))
            texts.append(json.dumps((await page.ask("drop", name)).body))
        whole = "\n".join(texts)
    for each in (*secrets, service.api_key, service.oauth_token, "private"):
        assert each not in whole


async def page_loads_nothing(service: Simulator, folder: Path) -> None:
    # The page may load nothing, runs only its own script, and is in no other page's frame.
    path = await fill_journal(service, folder)
    async with console_page(path) as page:
        async with page.http.get(page.url) as answer:
            policy = answer.headers["Content-Security-Policy"]
            text = await answer.text()
            assert answer.headers["X-Frame-Options"] == "DENY"
            assert answer.headers["Cache-Control"] == "no-store"
        async with page.http.get(page.url + "data?view=about") as answer:
            assert answer.headers["Cache-Control"] == "no-store"
    for part in ("default-src 'none'", "form-action 'none'", "frame-ancestors 'none'"):
        assert part in policy
    assert "unsafe" not in policy
    for left in ("http://", "https://", "SHARED_STYLE", "NONCE", "PAGE_SESSION"):
        assert left not in text
    # nothing that makes markup of a text
    for risky in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):  # fmt: skip
        assert risky not in text


async def views_change_nothing(service: Simulator, folder: Path) -> None:
    # A console that is only looked at leaves the files as they are, and works beside their owner.
    path = await fill_journal(service, folder)
    before = path.read_bytes()
    arrived = len(service.ledger.entries) + len(service.ledger.reads)
    async with console_page(path) as page:
        assert {*await page.rows()} == {"applied", "refused", "unknown"}
        for view in ("about", "list", "report"):
            await page.data(view)
        await asked_to_resolve(page)
    assert path.read_bytes() == before
    async with client_of(service, journal=str(path)) as client:
        await client.outcome_of("unknown")  # which opens it
        async with console_page(path) as page:
            told = await page.confirm(await asked_to_resolve(page))
            assert told.status == 409
            assert "in use by" in told.body["problem"]
            assert await state_of(page, "unknown") == "unknown"
    assert len(service.ledger.entries) + len(service.ledger.reads) == arrived


SCENES = {
    each.__name__: each
    for each in (
        address_is_secret,
        other_sites,
        only_post,
        only_json,
        session_is_needed,
        session_ends,
        confirmation_of_another,
        confirmation_is_needed,
        confirmation_is_for_once,
        changed_meanwhile,
        changed_event,
        store_refuses_too,
        not_for_its_state,
        batch_keeps_what_is_done,
        texts_are_visible,
        no_secrets,
        page_loads_nothing,
        views_change_nothing,
    )
}
