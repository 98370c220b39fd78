"""Headless Chromium, driven over its debugging protocol; tests are skipped where it is not installed."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--remote-debugging-port=0",
]  # fmt: skip
# Numbers, and words of up to 24 characters, that a table shows on more than one line.
BROKEN = """[...document.querySelectorAll('th, td')].flatMap(cell => {
  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), found = [];
  for (let node = walker.nextNode(); node; node = walker.nextNode())
    for (const word of node.data.matchAll(/[\\w.,]+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map(each => Math.round(each.top)));
      if (word[0].length <= 24 && lines.size > 1) found.push(word[0]);
    }
  return found;
})"""
# Whether a page is as wide as its window.  A phone's innerWidth would grow with a page that is too wide.
FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


class Page:
    """One page of a browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._numbers = socket, itertools.count(1)
        # of the console: errors and what the page's policy has blocked
        self.messages: list[str] = []

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the debugging protocol."""
        number = next(self._numbers)
        await self._socket.send_json(
            {"id": number, "method": method, "params": parameters}
        )
        while True:
            told = await self._socket.receive_json()
            if told.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.messages.append(str(told["params"]))
            if told.get("id") == number:
                assert "error" not in told, told["error"]
                return told["result"]

    async def open(self, url: str, width: int = 1400, height: int = 900) -> None:
        """Open *url* in a window of that size, without scroll bars."""
        await self.call("Emulation.setScrollbarsHidden", hidden=True)
        for part in ("Page", "Log", "Runtime"):
            await self.call(f"{part}.enable")
        size = {
            "width": width,
            "height": height,
            "deviceScaleFactor": 1,
            "mobile": width < 600,
        }
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        await self.call("Page.navigate", url=url)
        await self.until(
            "document.readyState === 'complete' && location.href !== 'about:blank'"
        )

    async def prefer(self, mode: str) -> None:
        """Show pages as somebody sees them who prefers *mode*, light or dark."""
        wish = {"name": "prefers-color-scheme", "value": mode}
        await self.call("Emulation.setEmulatedMedia", features=[wish])

    async def run(self, script: str) -> Any:
        """Return the value of an expression in JavaScript."""
        told = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    async def until(self, script: str) -> Any:
        """Wait until an expression is true, and return its value."""
        return await until(lambda: self.run(script))

    async def picture(self) -> bytes:
        """Return a picture of the whole page, as PNG."""
        told = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(told["data"])


@asynccontextmanager
async def browser(folder: Path) -> AsyncGenerator[Page]:
    """Run a browser with an empty page; its profile is in *folder*."""
    assert CHROMIUM is not None
    child = await asyncio.create_subprocess_exec(
        CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert child.stderr is not None
    try:
        async with asyncio.timeout(300):
            async for line in child.stderr:
                if b"DevTools listening on " in line:
                    address = line.split(b" on ")[1].decode().strip()
                    break
        root = "http://" + address.removeprefix("ws://").partition("/")[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{root}/json/list") as answer:
                (page,) = [
                    each for each in await answer.json() if each["type"] == "page"
                ]
            async with session.ws_connect(
                page["webSocketDebuggerUrl"], max_msg_size=0
            ) as socket:
                yield Page(socket)
    finally:
        child.terminate()
        await child.communicate()
