"""The outbox under kills, a damaged page, a folder that cannot be written, and a second process."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from contextlib import contextmanager

import pytest

from invsvc_async import JournalError, Verdict
from invsvc_async.simulator import Simulator
from tests.batch.conftest import HOOK, client_of
from tests.hardening.kills import outboxes

PAGE = 4096  # bytes
NOBODY = 65534


@pytest.fixture
async def service():
    async with Simulator() as running:
        yield running


async def left_open(service, path, many=1):
    """Leave *many* writes in doubt in the outbox at *path*."""
    service.script("webhooks.create", *["apply, then hang 0.05"] * many)
    service.script("webhooks.list", *["500"] * 200)
    async with client_of(service, journal=path) as client:
        for number in range(many):
            hook = {**HOOK, "description": f"{number} {'x' * 2000}"}
            write = client.webhooks.create(**hook, tag=True).with_policy(deadline=0.1)
            assert (await write.outcome()).verdict is Verdict.UNKNOWN


async def test_outbox_that_is_killed(tmp_path):
    """Killed three times under faults, each write that arrived has one effect at most and a true verdict."""
    survived = await outboxes(3, tmp_path, seed_of=5)

    assert survived.wrong == []
    assert survived.writes > survived.kills == 3  # each process got as far as the service before its kill


@pytest.mark.parametrize("spoil", [b"\0", b"\xff"], ids=["zeros", "ones"])
async def test_outbox_with_a_damaged_page(service, tmp_path, spoil):
    """A page that was damaged is told in words, wherever it is; nothing is sent, and nothing is lost silently."""
    path = tmp_path / "outbox.db"
    await left_open(service, path, many=8)
    whole = path.read_bytes()
    sends = service.arrivals("webhooks.create")
    told = 0
    for page in range(len(whole) // PAGE):
        path.write_bytes(whole[: page * PAGE] + spoil * PAGE + whole[(page + 1) * PAGE :])
        client = client_of(service, journal=path)
        [found] = await asyncio.gather(client.recover(), return_exceptions=True)
        await client.aclose()
        if isinstance(found, JournalError):
            told += str(path) in str(found)
        else:
            assert len(found) == 8, f"page {page}: some were lost, and nothing was said: {found}"

    assert told >= 2
    assert service.arrivals("webhooks.create") == sends


async def test_row_that_is_damaged(service, tmp_path):
    """An intent that is no text, or no intent, is told in words, with its key."""
    path = tmp_path / "outbox.db"
    await left_open(service, path)
    for value, words in (
        ("CAST(x'80ff' AS TEXT)", "outbox"),
        ("'{}'", "cannot be read"),
        ("x'00'", "cannot be read"),
    ):
        db = sqlite3.connect(path)
        db.execute(f"UPDATE entries SET intent = {value}")  # noqa: S608 - the test's own
        db.commit()
        db.close()
        client = client_of(service, journal=path)
        with pytest.raises(JournalError, match=words):
            await client.recover()
        await client.aclose()


@contextmanager
def without_root():
    """Give up root's power to write anywhere, where the tests run as root."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(was)


async def test_folder_that_cannot_be_written(service, tmp_path):
    """It is told in words, with the path, before anything is sent."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    async with client_of(service, journal=tmp_path / "open.db") as client:  # imports what it needs
        await client.webhooks.create(**HOOK)
    client = client_of(service, journal=folder / "outbox.db")
    with without_root(), pytest.raises(JournalError, match=r"closed/outbox\.db"):
        await client.webhooks.create(**HOOK).outcome()
    await client.aclose()

    assert service.arrivals("webhooks.create") == 1


HOLD = """
import asyncio, sys
from invsvc_async.batch.outbox import Outbox
async def main(path):
    outbox = Outbox(path)
    await outbox.open()
    print("held", flush=True)
    sys.stdin.read()
asyncio.run(main(sys.argv[1]))
"""


async def test_outbox_that_another_process_holds(service, tmp_path):
    """A second process is told who holds it, sends nothing, and may have it once the first is gone."""
    path = tmp_path / "outbox.db"
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLD, str(path), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert await holder.stdout.readline() == b"held\n"
    client = client_of(service, journal=path)
    with pytest.raises(JournalError, match=str(holder.pid)):
        await client.webhooks.create(**HOOK).outcome()
    await client.aclose()
    assert service.ledger.entries == []
    holder.kill()
    await holder.wait()

    async with client_of(service, journal=path) as client:
        assert (await client.webhooks.create(**HOOK).outcome()).verdict is Verdict.APPLIED
