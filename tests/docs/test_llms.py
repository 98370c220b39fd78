"""The list of all pages for agents has the form of llmstxt.org, and each page."""

from __future__ import annotations

import re

from docs.llms import llms_txt, opening
from tests.docs.pages import ROOT

ENTRY = re.compile(r"- \[([^\[\]]+)\]\(([\w/-]+)\.html\)(?:: (\S.*[^:\s]))?")


def test_form_of_the_list() -> None:
    """A title, a summary, and sections of links, each with a title and one sentence."""
    head, *sections = llms_txt().split("\n\n## ")

    assert re.fullmatch(r"# invsvc_async\n\n> An async Python client .+\.", head)
    assert len(sections) > 5
    for section in sections:
        caption, entries = section.split("\n\n")
        assert re.fullmatch(r"[A-Z][\w ]+", caption)
        assert [
            line for line in entries.splitlines() if not ENTRY.fullmatch(line)
        ] == []


def test_pages_of_the_list() -> None:
    """Every page is there once by its title; how-tos and explanations with a sentence."""
    found = {
        page: (title, sentence) for title, page, sentence in ENTRY.findall(llms_txt())
    }
    pages = [
        page.relative_to(ROOT / "docs").with_suffix("").as_posix()
        for page in (ROOT / "docs").rglob("*.md")
    ]
    pages = [each for each in pages if not each.startswith(("_build/", "_generated/"))]

    assert sorted([*found, "index", "reference/index"]) == sorted(pages)
    assert found["how-to/walk-lists"] == (
        "Read lists",
        "Read a list item by item, page by page, or from where you stopped.",
    )
    bare = {page for page, (_, sentence) in found.items() if not sentence}
    assert all(
        page.startswith("reference/") for page in bare - {"coming-from", "versions"}
    )


def test_first_sentence_of_a_page() -> None:
    """Links become their words, a colon within the sentence stays, and code or a heading is no sentence."""
    assert opening("# A\n\nSee [b](c.md): it\nis. More.\n\nX") == ("A", "See b: it is.")
    assert opening("# A\n\nThese:\n\nX") == ("A", "These")
    assert opening("# A\n\n```python\nx.\n```\n") == ("A", "")
    assert opening("# A\n\n## B\n\nC.") == ("A", "")
