"""nox looks for some markers in the text of the test files, so that workers import no others."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_python

TESTS = Path(__file__).parents[1]
SELECTING = re.compile(r"mark\.(untraced|every_python)\b")


def test_files_that_select():
    """No helper or conftest sets a marker by which nox selects files: it would not find the tests."""
    helpers = [
        file for file in TESTS.rglob("*.py") if not file.name.startswith("test_")
    ]

    assert helpers
    assert [
        file for file in helpers if SELECTING.search(file.read_text(encoding="utf-8"))
    ] == []
