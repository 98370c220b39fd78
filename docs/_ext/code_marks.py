"""Where lines end in code: not before a mark of punctuation, and in a long word after its parts."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

CODE = r'(?:<a [^>]*>)?<code class="[^"]*\bliteral\b[^"]*">(?:(?!</code>)[^\n])*</code>(?:</a>)?'
MARKED = re.compile(rf"\({CODE}[.,:;)?!]*|{CODE}[.,:;)?!]+")
WORD = re.compile(r'<span class="pre">(.*?)</span>')
PART = re.compile(r"(?<=.)(?:/(?!/)|[,(]|\)(?=\.))(?=[^)])")
LONGEST = 24  # characters; a longer word must be broken on a phone
LONG_IN_TABLES = 16  # characters


def joined(body: str) -> str:
    """Return the HTML *body*, with each piece of code and the marks beside it in one element."""
    body = re.sub(CODE, _with_breaks, body)
    return MARKED.sub(r'<span class="marked">\g<0></span>', body)


def _with_breaks(code: re.Match[str]) -> str:
    return WORD.sub(_word, code[0])


def _word(found: re.Match[str]) -> str:
    length = len(unescape(found[1]))
    parts = PART.sub(r"\g<0><wbr>", found[1]) if length > LONG_IN_TABLES else found[1]
    return f'<span class="pre{" long" if length > LONGEST else ""}">{parts}</span>'


def join_marks(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: object
) -> None:
    """Join them in the body of a page."""
    if "body" in context:
        context["body"] = joined(context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the hook."""
    app.connect("html-page-context", join_marks)
    return {"parallel_read_safe": True}
