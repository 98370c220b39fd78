"""Tables of the documentation on a phone."""

from __future__ import annotations

import pytest
from docutils.core import publish_doctree, publish_from_doctree

from docs._ext.phone_tables import MOST, keep_numbers_whole, label_cells
from tests.docs.test_pictures import STYLE
from tests.support.browser import CHROMIUM, FITS, browser

pytestmark = pytest.mark.one_python

PAGE = """<!doctype html><meta name="viewport" content="width=device-width"><style>{style}</style>
<body style="margin: 0"><article>{table}</article>"""


def table_of(columns, cell):
    """Return the document with a table of so many columns, the second of them without a title."""
    titles = [f"column {number}" for number in range(columns)]
    titles[1] = '""'
    lines = [".. csv-table::", "   :header-rows: 1", ""]
    rows = [titles, [cell] * columns]
    lines += [f"   {','.join(row)}" for row in rows]
    found = publish_doctree("\n".join(lines), settings_overrides={"report_level": 5})
    keep_numbers_whole(None, found)
    label_cells(None, found)
    return found


@pytest.mark.parametrize(
    ("columns", "cell", "is_folded"),
    [
        (MOST, "1.25", False),
        (MOST + 1, "1.25", True),
        (2, "word " * 30, True),
        (3, "``a_long_name``", False),
        (3, "``an_even_longer_name``", True),
        (3, "between 20 and 30", False),
        (3, "20 bytes, and 30 µs", True),
    ],
)
def test_wide_table_is_folded(columns, cell, is_folded) -> None:
    """One with many columns, long rows or long words becomes cards, whose cells have the title of their column."""
    text = table_of(columns, cell).pformat()
    assert ('<table classes="cards"' in text) == is_folded
    assert ("column 1: " in text) is False
    assert ("column 2: " in text) == (is_folded and columns > 2)


@pytest.mark.parametrize(("cell", "has_title"), [("1.25", True), ("a word", False)])
def test_heading_of_a_card(cell, has_title) -> None:
    """A number as the heading of a card has the title of its column; words speak for themselves."""
    text = table_of(MOST + 1, cell).pformat()
    assert ("column 0: " in text) == has_title


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")
async def test_table_of_numbers_on_a_phone(tmp_path) -> None:
    """All columns of it are seen without scrolling."""
    html = publish_from_doctree(table_of(12, "1.25 µs"), writer="html5")
    table = html.decode().partition("<body")[2].partition(">")[2]
    text = PAGE.format(style=STYLE.read_text(encoding="utf-8"), table=table)
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    async with browser(tmp_path / "profile") as page:
        await page.open((tmp_path / "page.html").as_uri(), 390, 800)
        assert await page.run(FITS)
        assert "column 11: 1.25 µs" in await page.run("document.body.innerText")
