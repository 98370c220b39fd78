"""Numbers and their units on the pages."""

from __future__ import annotations

import pytest

from docs._ext.units import joined


@pytest.mark.parametrize("unit", ["s", "ms", "µs", "kB", "MB", "TB", "MiB", "%"])
def test_unit(unit) -> None:
    """It stays on the line of its number."""
    assert joined(f"up to 15 {unit}.") == f"up to 15\N{NO-BREAK SPACE}{unit}."


@pytest.mark.parametrize("text", ["15 seconds", "a s", "15 sB"])
def test_other_word(text) -> None:
    """It may begin a line."""
    assert joined(text) == text
