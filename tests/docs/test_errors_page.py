"""The page of errors has a paragraph for each exception: when it is raised, what is true then, what to do."""

from __future__ import annotations

import re
from pathlib import Path

from invsvc_async import errors

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
ENTRY = re.compile(r"\.\. autoexception:: invsvc_async\.errors\.(\w+)\n```\n\n(.+)\n\n\*What to do:\* (.+)\n")


def test_each_exception_has_its_paragraph():
    """The public exceptions are those of the page; each is described, and has what to do."""
    text = PAGE.read_text(encoding="utf-8")
    entries = {name: (when, what) for name, when, what in ENTRY.findall(text)}
    exceptions = {name for name in errors.__all__ if isinstance(getattr(errors, name), type)}

    assert entries.keys() == exceptions
    for name, (when, what) in entries.items():
        assert len(when) > 40, name
        assert len(what) > 20, name
        assert "Raised" in when or "HTTP" in when or getattr(errors, name).__subclasses__(), name
