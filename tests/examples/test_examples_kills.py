"""The FastAPI example in four processes that are killed under load."""

from __future__ import annotations

import pytest

from tests.examples.killing import run

pytestmark = pytest.mark.untraced


async def test_four_workers_killed_under_load():
    """The application's tables and the ledger agree; each event was handled, and by one worker at a time."""
    survived = await run(40, 150, 5, every=0.3, most=3)

    assert survived.wrong == []
    assert survived.kills > 0
    assert survived.answers["registration 202"] > 0
    assert survived.answers["registration 500"] > 0
