"""Look at all built pages in Chromium, wide and on a phone: ``python -m tests.support.built_pages FOLDER``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.browser import CHROMIUM, FITS, browser

PHONE = 390
WIDTHS = (PHONE, 1280)
TABLES_FIT = """[...document.querySelectorAll('.table-wrapper')]
  .every(each => each.scrollWidth <= each.clientWidth)"""


async def wide_pages(files: list[Path]) -> list[str]:
    """Return the pages that are wider than their window, or a table than its page on a wide screen."""
    found = []
    with TemporaryDirectory() as profile:
        async with browser(Path(profile)) as page:
            for file in files:
                for width in WIDTHS:
                    await page.open(file.as_uri(), width, 800)
                    if not await page.run(FITS):
                        found.append(f"{file} at {width} px")
                    elif width > PHONE and not await page.run(TABLES_FIT):
                        found.append(f"{file}: a table at {width} px")
    return found


def main() -> None:
    """Print the pages that do not fit; the exit code is 1 if there are any."""
    if CHROMIUM is None:
        sys.exit("chromium: is not installed. Install it to look at the pages.")
    files = sorted(Path(sys.argv[1]).resolve().rglob("*.html"))
    found = asyncio.run(wide_pages(files))
    if found:
        sys.exit("\n".join(f"wider than its window: {each}" for each in found))


if __name__ == "__main__":
    main()
