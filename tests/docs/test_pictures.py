"""Pictures of the documentation: a dark one for dark mode, and a hint where they scroll."""

from __future__ import annotations

import base64
import re

import pytest

from docs.make_pictures import PAGE_WIDTH
from tests.docs.pages import PAGES, ROOT
from tests.support.browser import CHROMIUM, FITS, browser

pytestmark = pytest.mark.one_python

STYLE = ROOT / "docs" / "_static" / "pages.css"
PAGE_PICTURE = re.compile(r"\]\(([^)]+)\.png\)\{\.page\}")
SHOWN = """<!doctype html><meta name="viewport" content="width=device-width"><style>{style}</style>
<body style="margin: 0 16px"><p><img class="{kind}" src="data:image/svg+xml;base64,{picture}"></p>
<div class="diagram"><svg viewBox="0 0 700 300"></svg></div>"""
PICTURE = base64.b64encode(
    b'<svg xmlns="http://www.w3.org/2000/svg" width="1000" height="400"/>'
).decode()


def test_each_page_has_a_dark_picture():
    """A picture of a page stands beside the one for dark mode, of the same size."""
    pictures = [
        page.parent / f"{found}.png"
        for page in PAGES
        for found in PAGE_PICTURE.findall(page.read_text(encoding="utf-8"))
    ]
    assert len(pictures) >= 2
    for each in pictures:
        light = each.read_bytes()
        dark = each.with_name(f"{each.stem}-dark.png").read_bytes()
        assert light != dark
        assert light[16:24] == dark[16:24]  # the size, in the header of a PNG


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")
@pytest.mark.parametrize("kind", ["terminal", "page"])
async def test_picture_on_a_phone(tmp_path, kind):
    """A wide picture scrolls in its own box, at a size in which it can be read, and fades at the side."""
    text = SHOWN.format(
        style=STYLE.read_text(encoding="utf-8"), kind=kind, picture=PICTURE
    )
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    async with browser(tmp_path / "profile") as page:
        await page.open((tmp_path / "page.html").as_uri(), 390, 800)
        assert await page.run(FITS)
        width = await page.run("document.querySelector('img').clientWidth")
        assert kind == "terminal" or width == PAGE_WIDTH
        for box in ("p", ".diagram"):
            found = f"document.querySelector('{box}')"
            assert await page.run(f"{found}.scrollWidth > {found}.clientWidth")
            assert (
                await page.run(f"getComputedStyle({found}, '::after').position")
                == "sticky"
            )
