"""A console that runs in this process, and one of its pages without a browser."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import aiohttp

from invsvc_async.cli.commands.console import ConsoleOptions, console
from invsvc_async.cli.output import as_json
from tests.support.waiting import cancel, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from invsvc_async.simulator import Simulator

_SESSION = re.compile(r'const SESSION = "([\w-]{32})"')


class Told(NamedTuple):
    status: int
    body: Any


class Page:
    """One loaded page: its address, and the token of its session."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self.http = http
        self.url = url
        self.token = ""

    async def load(self) -> Page:
        """Load the page, which begins a session."""
        async with self.http.get(self.url) as answer:
            found = _SESSION.search(await answer.text())
        assert found is not None
        self.token = found[1]
        return self

    async def another(self) -> Page:
        """Load the page once more, as another session."""
        return await Page(self.http, self.url).load()

    async def get(self, path: str = "", **options: Any) -> Told:
        """Return the answer to a GET, as text."""
        async with self.http.get(self.url + path, **options) as answer:
            return Told(answer.status, await answer.text())

    async def data(self, view: str, **query: object) -> Any:
        """Return what a view shows."""
        given = {"view": view, **{name: str(value) for name, value in query.items()}}
        told = await self.get("data", params=given)
        assert told.status == 200, told
        return json.loads(told.body)

    async def rows(self, **query: object) -> dict[str, dict[str, str]]:
        """Return the lines of the list by key, as texts by title."""
        told = await self.data("list", **query)
        titles = told["table"]["titles"]
        lines = [dict(zip(titles, row, strict=True)) for row in told["table"]["rows"]]
        return {line.get("key") or line["id"]: line for line in lines}

    async def named(self, key: str, **query: object) -> str:
        """Return the name by which the page asks for the write under *key*."""
        told = await self.data("list", **query)
        place = told["table"]["titles"].index("key")
        return next(
            name
            for name, row in zip(told["names"], told["table"]["rows"], strict=True)
            if row[place] == key
        )

    async def shown(self, name: str) -> dict[str, Any]:
        """Return what the page shows of one, with its facts by name."""
        told = await self.data("show", name=json.dumps(name))
        return {**told, "facts": dict(told.get("facts", []))}

    async def post(self, act: str, asked: object, **headers: str) -> Told:
        """Return the answer to a POST of the page."""
        given = {"X-Page-Session": self.token, **headers}
        async with self.http.post(self.url + act, json=asked, headers=given) as answer:
            text = await answer.text()
        return Told(answer.status, json.loads(text) if text[:1] == "{" else text)

    async def ask(self, change: str, *names: str, **more: object) -> Told:
        """Ask for a change of what has these names."""
        return await self.post("ask", {"change": change, "names": names, **more})

    async def confirm(self, told: Told) -> Told:
        """Confirm what the page was asked."""
        return await self.post("confirm", {"confirmation": told.body["confirmation"]})

    async def do(self, change: str, *names: str, **more: object) -> str:
        """Ask for a change, confirm it, and return what was done."""
        asked = await self.ask(change, *names, **more)
        assert asked.status == 200, asked
        done = await self.confirm(asked)
        assert done.status == 200, done
        return str(done.body["done"])


@asynccontextmanager
async def running_console(
    place: object,
    kind: Any = None,
    *,
    service: Simulator | None = None,
    table: str = "invsvc_delivery",
) -> AsyncGenerator[str]:
    """Run ``invsvc console`` of the store at *place*; yields the address of its page."""
    variables = {}
    if service is not None:
        variables = {
            "INVSVC_BASE_URL": service.base_url,
            "INVSVC_API_KEY": service.api_key,
        }
    printed = io.StringIO()
    restored = as_json.set(True)
    with patch.dict(os.environ, variables):
        with contextlib.redirect_stdout(printed):
            running = asyncio.create_task(
                console(ConsoleOptions(str(place), kind, table))
            )
            await until(lambda: running.done() or "\n" in printed.getvalue())
        as_json.reset(restored)
        if running.done():
            running.result()
        try:
            yield json.loads(printed.getvalue())["console_url"]
        finally:
            await cancel(running)


@asynccontextmanager
async def console_page(
    place: object, kind: Any = None, **more: Any
) -> AsyncGenerator[Page]:
    """Run a console and load its page."""
    async with (
        running_console(place, kind, **more) as url,
        aiohttp.ClientSession() as http,
    ):
        yield await Page(http, url).load()
