"""Marks of punctuation on the pages, beside code."""

from __future__ import annotations

import pytest

from docs._ext.code_marks import joined

CODE = '<code class="docutils literal notranslate"><span class="pre">key</span></code>'
LINK = f'<a class="reference" href="a.html">{CODE}</a>'


@pytest.mark.parametrize("code", [CODE, LINK])
@pytest.mark.parametrize(
    ("before", "after"), [("", "."), ("(", ")"), ("(", ""), ("", "),")]
)
def test_mark_beside_code(code, before, after) -> None:
    """It is in one element with the code, so that no line ends between them."""
    marked = f'<span class="marked">{before}{code}{after}</span>'

    assert joined(f"<p>a {before}{code}{after} b</p>") == f"<p>a {marked} b</p>"


def test_code_without_marks() -> None:
    """It stays as it is."""
    assert joined(f"<p>a {CODE} b</p>") == f"<p>a {CODE} b</p>"


def test_long_word() -> None:
    """It can be broken, because it may be longer than a line; its marks stay beside its ends."""
    long = CODE.replace("key", "k" * 25)

    assert joined(f"({long})") == f'<span class="marked long">({long})</span>'
