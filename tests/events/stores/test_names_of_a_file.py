"""One SQLite event store under two names has two logs, and is damaged: it is refused."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys

import pytest

from invsvc_async import events
from invsvc_async.errors import JournalError
from tests.support.children import counted_elsewhere

pytestmark = [
    pytest.mark.one_python,
    pytest.mark.skipif(
        sys.platform != "linux", reason="only Linux has these locks and mounts"
    ),
]

# Put a delivery into the store at a path, keep it open until the input ends, and print what happened.
PUTS = """
import asyncio, sys
from invsvc_async import JournalError, events
async def main():
    store = events.SqliteStore(sys.argv[1])
    try:
        await store.put(events.Delivery(key=sys.argv[2], type="t", body=b"{}"))
        print("stored", flush=True)
    except JournalError as error:
        print(error, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await store.close()
asyncio.run(main())
"""
MOUNTED = 'mount --bind "$1" "$2" && exec "$3" -c "$4" "$2" "$5"'


@pytest.fixture
def path(tmp_path):
    return tmp_path / "events.db"


@pytest.fixture
async def put_elsewhere(path, tmp_path):
    """Return what puts a delivery from another process, under the same name or under that of a mount."""
    if (
        shutil.which("unshare") is None
        or subprocess.run(["unshare", "-m", "true"], check=False).returncode  # noqa: ASYNC221, S607 - at once
    ):
        pytest.skip("nothing can be mounted here")
    children = []

    async def put(key, *, mounted=True):
        command = [sys.executable, "-c", PUTS, str(path), key]
        if mounted:
            other = tmp_path / "mounted" / "events.db"
            other.parent.mkdir(exist_ok=True)
            other.touch()
            command = [
                *("unshare", "-m", "sh", "-c", MOUNTED, "sh"),
                *(str(path), str(other), sys.executable, PUTS, key),
            ]
        child = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        children.append(child)
        return child, (await child.stdout.readline()).decode().strip()

    yield put
    for child in children:
        child.stdin.close()
        await child.wait()


async def opened(path):
    store = events.SqliteStore(path)
    await store.put(events.Delivery(key="first", type="t", body=b"{}"))
    return store


async def test_mounted_file_while_it_is_in_use(path, put_elsewhere):
    """The process with the second name is refused; those with the first go on, and others join them."""
    store = await opened(path)
    _, said = await put_elsewhere("second")
    assert "it is in use under another name" in said
    assert "mount its whole folder" in said
    _, said = await put_elsewhere("third", mounted=False)
    assert said == "stored"
    assert await store.put(events.Delivery(key="fourth", type="t", body=b"{}"))
    assert {each.key for each in await store.take(limit=9, lease=9.0)} == {
        "first",
        "third",
        "fourth",
    }
    await store.close()


async def test_file_whose_mount_is_in_use(path, put_elsewhere):
    """It is the same the other way round; once the mount is not used any more, the name is free again."""
    await (await opened(path)).close()
    child, said = await put_elsewhere("second")
    assert said == "stored"
    with pytest.raises(JournalError, match="under another name"):
        await opened(path)
    child.stdin.close()
    await child.wait()
    store = await opened(path)
    assert {each.key for each in await store.take(limit=9, lease=9.0)} == {
        "first",
        "second",
    }
    await store.close()


async def test_stores_of_one_process(path):
    """
    Several in one process share the file, and closing one leaves the locks of the others as they are.

    Another process that closes the file meanwhile does not take itself for the last one, and loses nothing.
    """
    one, two = await opened(path), await opened(path)
    for number in (1, 2):
        assert await counted_elsewhere(path, "delivery") == number
        await one.put(events.Delivery(key="second", type="t", body=b"{}"))
    await one.close()
    assert await counted_elsewhere(path, "delivery") == 2
    assert await two.put(events.Delivery(key="third", type="t", body=b"{}"))
    assert await counted_elsewhere(path, "delivery") == 3
    await two.close()
    assert not [each for each in os.listdir("/proc/self/fd") if _leads_to(each, path)]  # noqa: PTH208 - of Linux


def _leads_to(number, path):
    try:
        return os.readlink(f"/proc/self/fd/{number}") == str(path)  # noqa: PTH115 - of Linux
    except OSError:
        return False


async def test_hard_link(path, tmp_path):
    """A file with two names is refused under each, because the log of its last use may have either name."""
    await (await opened(path)).close()
    (tmp_path / "other.db").hardlink_to(path)
    for name in (path, tmp_path / "other.db"):
        with pytest.raises(JournalError, match="2 names"):
            await opened(name)
