"""A recovery during which a write is heard of, or sent again: the writes after it are recovered all the same."""

from __future__ import annotations

import pytest

from invsvc_async.durable.journal import ClientJournal
from tests.durable.test_file_journal_verdicts import applied, ended, named, unknown  # noqa: F401 - a fixture


@pytest.mark.parametrize("what", ["verdicts", "intents"])
async def test_what_follows_a_write_that_was_heard_of(applied, tmp_path, what):  # noqa: F811 - the fixture
    """The one that was heard of, or is this process's own now, is left out, and each of the others comes."""
    path = tmp_path / "journal.db"
    outcomes = [
        named(applied if what == "verdicts" else unknown(applied), key)
        for key in "abcd"
    ]
    await ended(path, *outcomes)
    journal, found = ClientJournal(path), []
    await journal.open()
    try:
        async for each in (
            journal.unheard() if what == "verdicts" else journal.open_intents()
        ):
            found.append((each.started_as if what == "verdicts" else each).key)
            if len(found) == 1 and what == "verdicts":
                journal.heard(outcomes[1].started_as.identity)
            elif len(found) == 1:
                await journal.sending(outcomes[1].intent)
    finally:
        await journal.aclose()
    assert found == ["a", "c", "d"]
