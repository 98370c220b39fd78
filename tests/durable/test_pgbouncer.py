"""A shared batch through PgBouncer itself: session mode works, transaction mode is refused in words."""

from __future__ import annotations

import asyncio
import re
import shutil
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import pytest

from invsvc_async import JournalError
from invsvc_async.batch import Batch
from tests.batch.writing import all_of, creates
from tests.support.database import connected, database

PGBOUNCER = shutil.which("pgbouncer")
pytestmark = [
    pytest.mark.one_python,
    pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed"),
]


@asynccontextmanager
async def pooler(folder, port, role, mode):
    """Start PgBouncer on *port*; yield the address of the database behind it."""
    server = database()
    socket = parse_qs(urlsplit(server.address).query)["host"][0]
    async with connected() as owner:
        await owner.execute(f"CREATE ROLE {role} SUPERUSER LOGIN")
    connect = f"host={socket} user={role}"
    (folder / "users").write_text('"postgres" ""\n')
    (folder / "ini").write_text(
        f"[databases]\n* = {connect}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
        f"unix_socket_dir =\nauth_type = any\nauth_file = {folder}/users\nlogfile = {folder}/log\n"
        f"pool_mode = {mode}\nignore_startup_parameters = extra_float_digits\n"
    )
    user = server._server.system_user  # it does not run as root
    if user is not None:
        for each in (*folder.parents[:3], folder):
            each.chmod(0o755)
        for each in (folder, *folder.iterdir()):
            shutil.chown(each, user=user)
    child = await asyncio.create_subprocess_exec(
        PGBOUNCER,
        "-q",
        str(folder / "ini"),
        user=user,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        child.terminate()
        await child.wait()


async def test_session_mode(client, tmp_path, unused_tcp_port):
    """Everything works."""
    async with (
        pooler(tmp_path, unused_tcp_port, "session_role", "session") as address,
        Batch.open(
            f"{address}?batch=session", client, on_secret=lambda *_: None
        ) as batch,
    ):
        assert len(await all_of(batch, creates(client, 30))) == 30


async def test_transaction_mode(service, client, tmp_path, unused_tcp_port):
    """An error says what is wrong and what to do, and nothing is sent twice."""
    async with pooler(
        tmp_path, unused_tcp_port, "shared_role", "transaction"
    ) as address:
        words = "prepared statements, safe, session mode"
        try:
            async with Batch.open(
                f"{address}?batch=shared", client, on_secret=lambda *_: None
            ) as batch:
                results = await all_of(batch, creates(client, 30))
            # all statements happened to be where they were prepared
            assert len(results) == 30
        except JournalError as error:
            words = str(error)
    assert re.search("prepared statements.*safe.*session mode", words)
    assert service.arrivals("webhooks.create") == len(
        service.ledger.effects("webhooks.create")
    )
