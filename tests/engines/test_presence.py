"""Workers of one machine: what a killed one had is released at once, and what a living one has is not."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from uuid import uuid4

import pytest

from invsvc_async import ApiKey, Client
from invsvc_async.engines import presence
from invsvc_async.engines.portals import portal_of
from invsvc_async.engines.rows import send_rows
from invsvc_async.simulator import Faults
from invsvc_async.storage import file_lock
from invsvc_async.testing import serving
from tests.engines.rows_child import made as made_as_the_child, rows_of, write_of
from tests.support.database import connected, database

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not presence.MEMORY.is_dir(),
    reason="there is no folder in memory",
)
ROWS = 60


@pytest.fixture
def service():
    # no late effects: they would come after the windows of the worker
    faults = Faults(rate=0.2, kinds=("hang",), phases=("before", "after"), hang=60.0)
    with serving(faults=faults) as running:
        yield running


@pytest.fixture
def journal(request):
    """Return the address of a journal, whose workers count as dead only after an hour of silence."""
    return database().at(namespace=request.node.name[:40], silence=3600)


@pytest.fixture
def worker(service, journal):
    """Start a process that sends rows, some of which hang; yield it once it has results."""
    command = [
        sys.executable, "-m", "tests.engines.rows_child", service.base_url, service.api_key, journal, str(ROWS),
    ]  # fmt: skip
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - the project's own
    assert child.stdout is not None
    child.stdout.readline()
    yield child
    child.kill()
    child.communicate()


def kill(child):
    child.send_signal(signal.SIGKILL)
    child.wait()


async def owners(portal):
    """Return the tokens of the lanes of all processes but this one."""
    # reaches: what the journal has of others
    journal = portal.client._view.core.writes.journal
    lane = await journal.life.own_lane()
    schema = lane.leases.store.schema
    async with connected() as connection:
        found = await connection.fetch(f"SELECT owner FROM {schema}.lanes")
    return {row["owner"] for row in found} - {lane.token}


def test_worker_that_is_killed(service, journal, worker):
    """The next process releases its lane, takes its rows over, and each has one effect and a true verdict."""
    kill(worker)

    def make():
        return made_as_the_child(service.base_url, service.api_key, journal)

    with portal_of(make, keep=False) as lent:
        assert lent.portal.call(owners(lent.portal)) == {None}
        service.faults = Faults.none()
        results = [*send_rows(rows_of(ROWS, 0, []), write_of, key="order", client=make)]
    assert {result.verdict for result in results} == {"applied"}
    urls = [entry.body["url"] for entry in service.ledger.effects("webhooks.create")]
    assert len(urls) == len({*urls}) == ROWS


def test_worker_that_is_stopped(service, journal, worker):
    """It may go on at any time, so its lane stays its own; once it is killed, the lane is released."""
    worker.send_signal(signal.SIGSTOP)

    def make():
        return made_as_the_child(service.base_url, service.api_key, journal)

    with portal_of(make, keep=False) as lent:
        [owner] = lent.portal.call(owners(lent.portal))
        assert owner is not None
        kill(worker)
        while lent.portal.call(owners(lent.portal)) == {owner}:
            pass
        assert lent.portal.call(owners(lent.portal)) == {None}


def test_system_without_locks(service, journal, worker, monkeypatch):
    """There, everybody gets each lock, which proves nothing: no lane is released."""

    def without_locks(_number):
        raise OSError(errno.ENOLCK, "no locks")

    # reaches: a file system without locks
    monkeypatch.setattr(file_lock, "_lock", without_locks)

    def make():
        return made_as_the_child(service.base_url, service.api_key, journal)

    with portal_of(make, keep=False) as lent:
        assert None not in lent.portal.call(owners(lent.portal))


def test_where_there_is_no_such_folder(service, journal, worker, monkeypatch, tmp_path):
    """As on other systems than Linux, the lane of a killed worker stays its own until its silence is over."""
    kill(worker)
    # reaches: another system
    monkeypatch.setattr(presence, "MEMORY", tmp_path / "none")

    def make():
        return made_as_the_child(service.base_url, service.api_key, journal)

    with portal_of(make, keep=False) as lent:
        assert None not in lent.portal.call(owners(lent.portal))


def is_taken_for_dead(path):
    """Return whether a process that looks at the file finds the token of a dead one."""
    lock = file_lock.WhileOpen(path)
    if not path.exists() or not lock.acquire():
        return False
    text = path.read_text()
    lock.release()
    return text != ""


def test_file_that_is_looked_at_before_it_is_locked(tmp_path):
    """The token of a living process is in no file whose lock it does not have."""
    shown = presence.Presence(None)
    looking = file_lock.WhileOpen(tmp_path / "w")
    assert looking.acquire()
    with pytest.raises(BlockingIOError):
        shown.show("1.2", tmp_path / "w")
    looking.release()
    assert not is_taken_for_dead(tmp_path / "w")

    shown.show("1.2", tmp_path / "w")
    assert (tmp_path / "w").read_text() == "1.2"
    assert not is_taken_for_dead(tmp_path / "w")


def test_file_that_was_deleted(tmp_path):
    """Another token of a living process is in no new file, which nobody has locked."""
    shown = presence.Presence(None)
    shown.show("1.2", tmp_path / "w")
    (tmp_path / "w").unlink()
    shown.show("1.3", tmp_path / "w")
    assert not is_taken_for_dead(tmp_path / "w")


def test_token_that_is_shorter_than_the_one_before(tmp_path):
    """Nothing is left of that one."""
    shown = presence.Presence(None)
    for token in ("member.17", "member.2"):
        shown.show(token, tmp_path / "w")
        assert (tmp_path / "w").read_text() == token


def test_worker_that_leaves(service):
    """Nothing of it is left in the folder of its journal."""
    mark = uuid4().hex[:8]
    journal = database().at(journal=mark)

    def make():
        return Client(service.base_url, ApiKey(service.api_key), journal=journal)

    def files():
        folder = presence.MEMORY / f"invsvc-workers-{os.geteuid()}"
        return [*folder.glob(f"*{mark}*/*")]

    with portal_of(make, keep=False):
        assert len(files()) == 1
    assert files() == []
