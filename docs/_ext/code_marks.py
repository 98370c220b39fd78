"""A mark of punctuation stays on the line of the code beside it, which browsers would otherwise leave."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

CODE = r'(?:<a [^>]*>)?<code class="[^"]*\bliteral\b[^"]*">[^\n]*?</code>(?:</a>)?'
MARKED = re.compile(rf"\({CODE}[.,:;)?!]*|{CODE}[.,:;)?!]+")
WORD = re.compile(r'<span class="pre">(.*?)</span>')
LONGEST = 24  # characters; a longer word must be broken on a phone


def joined(body: str) -> str:
    """Return the HTML *body*, with each piece of code and the marks beside it in one element."""
    return MARKED.sub(_element, body)


def _element(found: re.Match[str]) -> str:
    words = (unescape(word) for word in WORD.findall(found[0]))
    is_long = any(len(word) > LONGEST for word in words)
    return f'<span class="marked{" long" if is_long else ""}">{found[0]}</span>'


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
