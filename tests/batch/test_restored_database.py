"""A journal in PostgreSQL whose server went back in time, or whose tables were copied."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from invsvc_async import JournalError, Timeouts, Verdict
from invsvc_async.batch import Batch
from tests.batch.conftest import client_of
from tests.batch.test_restored import refused, run
from tests.batch.writing import SECRETS, creates, made_once
from tests.support.database import TABLES_MADE_ANEW, Database, database

pytestmark = [pytest.mark.one_python, pytest.mark.slow]


class Restorable(Database):
    """A server whose folder can be copied, and put back as a restore from a backup does."""

    async def back_up(self, folder):
        await self.control("-m", "fast", "stop")
        shutil.copytree(self._server.pgdata, folder)
        await self.restart()  # with the options of before

    async def restore(self, folder):
        """Restore the backup, and start the server: it begins another timeline."""
        await self.control("-m", "fast", "stop")
        await asyncio.to_thread(self._put_back, folder)
        await self.restart()

    def _put_back(self, folder):
        place = Path(self._server.pgdata)
        owner = place.stat()
        shutil.rmtree(place)
        shutil.copytree(folder, place)
        (place / "recovery.signal").touch()
        with (place / "postgresql.auto.conf").open("a") as file:
            # No connections until it has recovered.
            file.write("restore_command = 'false'\nhot_standby = off\n")
        for path in [place, *place.rglob("*")]:
            os.chown(path, owner.st_uid, owner.st_gid)


@pytest.fixture
def server():
    return Restorable(Path(tempfile.mkdtemp(prefix="pg")))


@asynccontextmanager
async def admin(**settings):
    """Yield a connection of the database's owner."""
    connection = await asyncpg.connect(database().address, server_settings=settings)
    yield connection
    await connection.close()


async def test_server_restored_from_a_backup(service, client, server, tmp_path):
    """Its worker stops in words before it sends more; once told, what the server lacks is settled, and none is twice."""
    journal, seen = server.journal("june", silence=1), []
    await run(journal, client, creates(client, 4))
    await server.back_up(tmp_path / "backup")
    with pytest.raises(JournalError, match="a replica was promoted"):
        async with Batch.open(journal, client, concurrency=1, **SECRETS) as batch:
            async for result in batch.run(creates(client, 60)):
                seen.append(result.key)
                if len(seen) == 8:
                    await server.restore(tmp_path / "backup")
    sent = service.arrivals("webhooks.create")
    assert sent < 60
    words = await refused(
        journal,
        client,
        "restored from a backup, or a replica was promoted",
        creates(client, 60),
    )
    assert "--moved" in words
    assert "--restored" in words
    assert service.arrivals("webhooks.create") == sent

    results = await run(journal, client, creates(client, 60), restored=True)
    assert {each.verdict for each in results.values()} == {Verdict.APPLIED}
    assert (len(results), made_once(service)) == (56, 60)


@pytest.mark.parametrize(
    ("trouble", "words"),
    [("restored", "a replica was promoted"), ("refusing", "refused a statement")],
)
async def test_trouble_under_a_worker_that_stores_nothing(service, trouble, words):
    """It stops though the only write that it may send is not answered yet: the others could not be sent."""
    service.script("webhooks.create", "hang")
    journal = database().journal(f"quiet_{trouble}", silence=1)
    async with (
        admin() as connection,
        client_of(service, timeout=Timeouts(attempt=600.0, call=900.0)) as client,
        Batch.open(journal, client, concurrency=1, **SECRETS) as batch,
    ):
        running = asyncio.create_task(anext(aiter(batch.run(creates(client, 3)))))
        await service.arrived("webhooks.create")
        if trouble == "restored":
            batch.entries.store._place["timeline"] = "00000077"
            await connection.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name LIKE 'invsvc%'"
            )
        else:
            await connection.execute(
                "ALTER TABLE invoicing_batch_quiet_refusing.members RENAME TO moved"
            )
        with pytest.raises(JournalError, match=words):
            async with asyncio.timeout(300):
                await running
    assert service.arrivals("webhooks.create") == 1


async def test_tables_that_are_restored_under_a_running_worker(service, client):
    """It stops in words before it sends again what the copy has as open, although no connection ended."""
    seen, copied, restored = [], asyncio.Event(), asyncio.Event()
    holds = {"row-1": copied, "row-4": restored}

    async def on_secret(key, _hook):
        if key in holds:
            await holds[key].wait()

    settings = {"concurrency": 1, "on_secret": on_secret}
    async with admin(search_path="invoicing_batch_alive") as connection:
        with pytest.raises(JournalError, match="the tables were made anew"):
            async with Batch.open(
                database().journal("alive"), client, **settings
            ) as batch:
                async for result in batch.run(creates(client, 6)):
                    seen.append(result.key)
                    if len(seen) == 1:
                        await connection.execute("CREATE TABLE copy AS TABLE entries")
                        copied.set()
                    if len(seen) == 4:
                        await connection.execute(f"BEGIN; {TABLES_MADE_ANEW} COMMIT")
                        restored.set()
    # A write that was taken out before is sent or not, as the worker comes to it; none is sent twice.
    assert service.arrivals("webhooks.create") in {5, 6}
    made_once(service)


async def test_tables_that_were_made_anew(service, client):
    """A dump that was restored is refused; with *moved*, it goes on."""
    journal = database().journal("dumped")
    await run(journal, client, creates(client, 3))
    async with admin(search_path="invoicing_batch_dumped") as connection:
        await connection.execute(
            f"CREATE TABLE copy AS TABLE entries; {TABLES_MADE_ANEW}"
        )
    await refused(journal, client, "the tables were made anew", creates(client, 4))
    assert service.arrivals("webhooks.create") == 3
    await run(journal, client, creates(client, 4), moved=True)
    assert service.arrivals("webhooks.create") == 4


async def test_role_that_may_not_ask_for_the_system(service, client):
    """Without the right to ask for the server's identity, the rest of the place counts."""
    right = "EXECUTE ON FUNCTION pg_control_system()"
    async with admin() as connection, AsyncExitStack() as stack:
        await connection.execute(
            f"CREATE ROLE plain LOGIN; GRANT CREATE ON DATABASE postgres TO plain; REVOKE {right} FROM PUBLIC"
        )
        stack.push_async_callback(connection.execute, f"GRANT {right} TO PUBLIC")
        address = database().journal("plain").replace("postgres:@", "plain:@")
        await run(address, client, creates(client, 3))
        await run(address, client, creates(client, 4))
        assert service.arrivals("webhooks.create") == 4
