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


def test_code_after_code() -> None:
    """Marks are beside the last of them alone."""
    assert (
        joined(f"{CODE} a {CODE}.") == f'{CODE} a <span class="marked">{CODE}.</span>'
    )


def test_long_word() -> None:
    """It can be broken, because it may be longer than a line; its marks stay beside its ends."""
    long = CODE.replace("key", "k" * 25)
    found = long.replace('"pre"', '"pre long"')

    assert joined(f"({long})") == f'<span class="marked">({found})</span>'


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("/teams/{id}/dbtable/webhooks", "/teams/<wbr>{id}/<wbr>dbtable/<wbr>webhooks"),
        ("call(client.get(&quot;jrn_1&quot;)).name", "call(<wbr>client.get(<wbr>&quot;jrn_1&quot;))<wbr>.name"),
        ("rate=0.2,reads=0.1", "rate=0.2,<wbr>reads=0.1"),
        ("request.content.iter_any()", "request.content.iter_any()"),
        ("postgresql://db/batches", "postgresql://<wbr>db/<wbr>batches"),
        ("/users/{id}", "/users/{id}"),
    ],
)  # fmt: skip
def test_parts_of_a_long_word(word, shown) -> None:
    """A line may end after each of them, so that none is broken."""
    found = joined(CODE.replace("key", word))

    assert found.partition(">")[2].partition(">")[2] == f"{shown}</span></code>"
