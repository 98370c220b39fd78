"""An outbox whose database is away as it is opened, with the setting that lets it start all the same."""

from __future__ import annotations

import logging

import asyncpg
import pytest

from invsvc_async import ConfigurationError, JournalError, Outbox, Verdict
from tests.batch.conftest import client_of
from tests.outbox.conftest import update
from tests.support.database import database
from tests.support.waiting import until, until_no

pytestmark = [pytest.mark.one_python, pytest.mark.usefixtures("sooner")]

NAME = "away_at_start"


@pytest.fixture
async def client(service):
    async with client_of(service) as made:
        yield made


async def test_outbox_that_starts_while_its_database_is_away(
    service, client, away, caplog
) -> None:
    """It refuses each use and says why, until the database is back: then it sends, without being opened anew."""
    caplog.set_level(logging.WARNING)
    given = []
    async with (
        Outbox.open(f"{away.address}&outbox={NAME}&starts_away=true", client) as outbox,
        outbox.dispatching(on_result=given.append),
    ):
        assert "starts without its database" in caplog.text
        assert outbox.problem is not None
        assert "cannot be used" in outbox.problem
        write = update(client, service, "new").keyed("first")
        for use in (
            outbox.send(write),
            outbox.get("first"),
            outbox.wait("first"),
            outbox.retry("first"),
        ):
            with pytest.raises(
                JournalError, match="has not been reached since the start"
            ) as refused:
                await use
            assert refused.value.is_away
        assert service.ledger.entries == []

        await away.open()
        await until_no(lambda: outbox.problem)

        await outbox.send(update(client, service, "new").keyed("first"))
        await until(lambda: given)
        assert [(each.key, each.verdict) for each in given] == [
            ("first", Verdict.APPLIED)
        ]
        assert "can be reached again" in caplog.text


async def test_enqueue_while_the_database_is_away_for_the_outbox_alone(
    service, client, away
) -> None:
    """A transaction of the application is refused before its first statement, so that it can go on."""
    async with Outbox.open(
        f"{away.address}&outbox={NAME}2&starts_away=true", client
    ) as outbox:
        connection = await asyncpg.connect(database().address)
        async with connection.transaction():
            with pytest.raises(JournalError, match="Nothing was done"):
                await outbox.enqueue(connection, update(client, service))
            assert await connection.fetchval("SELECT 1") == 1
        await connection.close()


async def test_outbox_that_is_closed_before_its_database_is_back(client, away) -> None:
    """It ends, and can be opened again."""
    outbox = Outbox.open(f"{away.address}&outbox={NAME}3&starts_away=true", client)
    async with outbox, outbox.dispatching():
        pass
    assert outbox.problem is None
    await away.open()
    async with outbox:
        assert outbox.problem is None


async def test_outbox_without_the_setting(client, away) -> None:
    """It does not start."""
    with pytest.raises(JournalError):
        async with Outbox.open(f"{away.address}&outbox={NAME}4", client):
            pass


async def test_outbox_that_waiting_does_not_mend(client) -> None:
    """What is wrong for good ends the start, also with the setting."""
    with pytest.raises(JournalError):
        async with Outbox.open(
            "postgresql://nobody@host.invalid/none?starts_away=true", client
        ):
            pass


def test_setting_that_is_not_true(client) -> None:
    """Another value is refused, so that nobody takes it for a choice."""
    with pytest.raises(ConfigurationError, match="starts_away"):
        Outbox.open("postgresql://db/app?starts_away=1", client)
