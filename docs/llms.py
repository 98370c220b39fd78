"""The pages of the documentation as ``llms.txt`` (https://llmstxt.org): their titles and first sentences."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
LINK = re.compile(r"\[([^\]]*)\]\(([^)]*)\)")
SENTENCE = re.compile(r".*?[.?:](?=\s|$)(?<!:)|.*:$")


def groups_of(index: str) -> list[tuple[str, list[str]]]:
    """Return the groups of pages that the first page lists: the caption, and the pages without ``.md``."""
    groups = re.findall(
        r"^\*\*(.+?)\*\*: (.+?)\n\n", index + "\n", re.MULTILINE | re.DOTALL
    )
    return [
        (caption, re.findall(r"\]\(([^)]+)\.md\)", text)) for caption, text in groups
    ]


def llms_txt() -> str:
    """Return the text.  The links are those of the built pages, relative to it."""
    index = (HERE / "index.md").read_text(encoding="utf-8")
    title, sentence = opening(index)
    lines = [f"# {title}", "", f"> {sentence}"]
    for caption, pages in [("Begin", ["tutorial"]), *groups_of(index)]:
        lines += ["", f"## {caption}", ""]
        for page in pages:
            title, sentence = opening((HERE / f"{page}.md").read_text(encoding="utf-8"))
            lines.append(
                f"- [{title}]({page}.html)" + (f": {sentence}" if sentence else "")
            )
    return "\n".join(lines) + "\n"


def opening(page: str) -> tuple[str, str]:
    """Return the title of a page and its first sentence, which is empty if it begins otherwise."""
    if included := re.match(r"```\{include\} (\S+)", page):
        page = (HERE / included[1]).read_text(encoding="utf-8")
    head, first, *_ = page.split("\n\n", 2)
    words = LINK.sub(r"\1", " ".join(first.split())).replace("**", "")
    sentence = SENTENCE.match(words) if re.match(r"\w|[\"`](?!``)", words) else None
    return head.removeprefix("# ").strip(), sentence[0].rstrip(":") if sentence else ""
