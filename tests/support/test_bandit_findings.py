"""The comparison of bandit's findings with their list."""

from __future__ import annotations

import pytest

from tests.support.bandit_findings import judged

pytestmark = pytest.mark.one_python

SQL = {"rule": "B608", "where": "invsvc_async/durable/*", "why": "a reason"}
WORD = {"rule": "B105", "where": "invsvc_async/*", "texts": ["lost"], "why": "a word"}


def finding(rule: str, file: str, text: str = "") -> dict[str, object]:
    return {"test_id": rule, "filename": file, "line_number": 3, "issue_text": text}


def test_finding_that_is_listed() -> None:
    """Its file or its text is that of an entry."""
    found = [
        finding("B608", "invsvc_async/durable/store/adding.py"),
        finding("B105", "invsvc_async/x.py", "Possible hardcoded password: 'lost'"),
    ]
    assert judged([SQL, WORD], found) == ([], [])


@pytest.mark.parametrize(
    "found",
    [
        finding("B608", "invsvc_async/client.py"),
        finding("B602", "invsvc_async/durable/store/adding.py"),
        finding("B105", "invsvc_async/x.py", "Possible hardcoded password: 'hunter2'"),
    ],
)
def test_finding_that_is_new(found: dict[str, object]) -> None:
    """Another file, rule or text is named."""
    listed = [finding("B608", "invsvc_async/durable/store/adding.py")]
    new, _ = judged([SQL, WORD], [*listed, found])
    assert len(new) == 1
    assert str(found["filename"]) in new[0]


def test_entry_of_what_is_gone() -> None:
    """It is to be removed, so that it excuses nothing later."""
    assert judged([SQL], []) == ([], ["B608 in invsvc_async/durable/*: a reason"])
