"""A client whose journal's database is away at its start, with the setting that lets it start all the same."""

from __future__ import annotations

import logging

import pytest

from invsvc_async import JournalError, NotSentError, Verdict, WriteNotAppliedError
from tests.batch.conftest import client_of
from tests.support.waiting import until_no

pytestmark = [pytest.mark.one_python, pytest.mark.usefixtures("sooner")]


@pytest.mark.parametrize("key", [None, "mine"], ids=["without a key", "with a key"])
async def test_client_that_starts_while_its_journal_is_away(
    service, away, caplog, key
) -> None:
    """It reads, refuses writes before their first byte, and writes once the database is back."""
    caplog.set_level(logging.WARNING)
    hook = service.seed_webhook().id
    address = f"{away.address}&journal=away_{key or 'unkeyed'}&starts_away=true".lower()
    async with (
        client_of(service, journal=address) as client,
        client.recovering(every=0.1),
    ):

        def change():
            write = client.webhooks.update(hook, description="new")
            return write if key is None else write.keyed(key)

        assert "starts without its journal" in caplog.text
        assert client.journal_problem is not None
        assert (await client.webhooks.get(hook)).id == hook
        with pytest.raises(
            (JournalError, WriteNotAppliedError, NotSentError),
            match=r"[Nn]othing was sent|not sent",
        ):
            await change()
        assert service.ledger.entries == []

        await away.open()
        await until_no(lambda: client.journal_problem)

        assert (await change().outcome()).verdict is Verdict.APPLIED
        assert len(service.ledger.entries) == 1


async def test_client_that_is_closed_before_its_journal_is_back(service, away) -> None:
    """It ends."""
    async with client_of(
        service, journal=f"{away.address}&journal=away_closed&starts_away=true"
    ):
        pass


async def test_client_without_the_setting(service, away) -> None:
    """It does not start."""
    with pytest.raises(JournalError):
        async with client_of(service, journal=f"{away.address}&journal=away_default"):
            pass
