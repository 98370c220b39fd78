"""The pages can be read as files, in a checkout or on a site that shows Markdown."""

from __future__ import annotations

import pydoc
import re

import pytest

from docs.copy_examples import with_examples
from tests.docs.pages import ROOT
from tests.docs.test_facts import PAGES

pytestmark = pytest.mark.untraced

DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
EACH = pytest.mark.parametrize(
    "page", [ROOT / "README.md", *PAGES], ids=lambda page: str(page.relative_to(ROOT))
)


@EACH
def test_examples_of_page(page) -> None:
    """They are in the page, as they are in their files: ``python docs/copy_examples.py`` copies them."""
    text = page.read_text()

    assert "{literalinclude}" not in text
    assert with_examples(text) == text


@EACH
def test_links_of_page(page) -> None:
    """Each one to a file leads to one that exists."""
    targets = [
        target for target in LINK.findall(page.read_text()) if "://" not in target
    ]

    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if re.search("^.. auto", page.read_text(), re.MULTILINE)],
    ids=lambda page: page.stem,
)
def test_page_made_of_docstrings(page) -> None:
    """As a file it has none of their text, so a comment says by which command that is read."""
    before, _, _ = page.read_text().partition("```{eval-rst}")
    [name] = re.findall(
        r"^% Signatures and texts: python -m pydoc (\S+)$", before, re.MULTILINE
    )

    assert pydoc.locate(name)


def test_list_of_all_pages() -> None:
    """The first page links to each other one, because the navigation is only in the built pages."""
    linked = {
        (DOCS / target).resolve()
        for target in LINK.findall((DOCS / "index.md").read_text())
    }
    indexes = {DOCS / "index.md", DOCS / "reference/index.md"}

    assert sorted(set(PAGES) - indexes - linked) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_next_step_of_page(page) -> None:
    """Its last section has a link to another page; the list of changes and the lists of pages need none."""
    if page.name in {"changelog.md", "glossary.md", "index.md"}:
        return

    assert re.search(r"\]\([^)]+\)", "\n".join(page.read_text().splitlines()[-25:]))
