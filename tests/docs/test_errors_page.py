"""The page of errors has a row for each exception: when it is raised, and what to do."""

from __future__ import annotations

import re
from pathlib import Path

from invsvc_async import errors

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
ROW = re.compile(r"^\| `(\w+)` \| (.+) \| (.+) \|$", re.MULTILINE)
SHOWN = re.compile(r"^\.\. autoexception:: invsvc_async\.errors\.(\w+)$", re.MULTILINE)


def test_each_exception_has_its_row():
    """The public exceptions are those of the page; each is described, and has what to do."""
    text = PAGE.read_text(encoding="utf-8")
    exceptions = {
        name for name in errors.__all__ if isinstance(getattr(errors, name), type)
    }

    assert (
        {name for name, _, _ in ROW.findall(text)}
        == set(SHOWN.findall(text))
        == exceptions
    )
    for name, when, what in ROW.findall(text):
        assert len(when) > 25, name
        assert len(what) > 20, name
