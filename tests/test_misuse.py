"""Small misuses of what is built on the client: an answer in words, and nothing left running."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from unittest.mock import Mock

import pytest

import invsvc_async.testing
from invsvc_async import (
    ApiKey,
    Client,
    InvalidRequestError,
    JournalError,
    Portal,
    Verdict,
)
from invsvc_async.batch import Batch, Progress, Result, Summary
from invsvc_async.cli.app import run
from invsvc_async.cli.arguments import time_of
from invsvc_async.testing import serving

# holds a journal until it is killed
HOLDS = """
import pathlib, sys, time
from invsvc_async.storage.file_lock import FileLock
lock = FileLock(pathlib.Path(sys.argv[1]), "journal", "")
lock.acquire()
print(flush=True)
time.sleep(60)
"""


def test_name_that_testing_does_not_have():
    """It is an attribute that is not there, as in any module."""
    with pytest.raises(
        AttributeError, match=r"module 'invsvc_async\.testing' has no attribute 'Mock'"
    ):
        _ = invsvc_async.testing.Mock


@pytest.mark.parametrize(
    "options",
    [{"latency": -1}, {"port": 1, "host": "192.0.2.1"}],
    ids=["setting", "address"],
)
def test_service_on_a_thread_that_cannot_be(options):
    """Why is raised where it was asked for, and the thread has ended."""
    with pytest.raises((ValueError, OSError)), serving(**options):
        pass
    assert "invsvc portal" not in {thread.name for thread in threading.enumerate()}


def test_service_whose_loop_cannot_be_made(monkeypatch):
    """The block ends with the error, and does not wait for ever."""
    monkeypatch.setattr(
        "asyncio.new_event_loop", Mock(side_effect=OSError(24, "Too many open files"))
    )
    with pytest.raises(OSError, match="Too many open files"), serving():
        pass


def test_time_in_epoch_milliseconds():
    """A number on the command line is taken for epoch ms, as the method has it."""
    assert time_of("created_after", "1777593600000") == 1777593600000


def test_batch_report_as_lines_and_as_json(capsys, tmp_path, monkeypatch):
    """Both can be asked for at once: the lines go to the file, the one object to the output."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.jsonl").write_text(
        '{"operation": "webhooks.create", "arguments": {"url": "https://me.example/in", "events": ["invoice.created"]}, "key": "row-1"}\n'
    )
    with serving() as service:
        monkeypatch.setenv("INVSVC_BASE_URL", service.base_url)
        monkeypatch.setenv("INVSVC_API_KEY", service.api_key)
        assert (
            run(
                [
                    "batch",
                    "one.jsonl",
                    "--journal",
                    "run.db",
                    "--secrets-to",
                    "secrets.jsonl",
                ]
            )
            == 0
        )
    capsys.readouterr()
    assert run(["batch", "report", "run.db", "--jsonl", "done.jsonl", "--json"]) == 0
    (line,) = map(json.loads, (tmp_path / "done.jsonl").read_text().splitlines())
    assert (line["key"], line["verdict"]) == ("row-1", "applied")
    assert json.loads(capsys.readouterr().out)["verdicts"] == {"applied": 1}


async def test_every_bad_argument_is_named_at_once():
    """What no row of the table has is named with what has one."""
    async with Client("http://127.0.0.1:1/v2", ApiKey("key")) as client:
        with pytest.raises(InvalidRequestError) as create:
            client.webhooks.create(
                url="x", events=["invoice.created"], tag=5, on_lost_secret="q"
            )
        with pytest.raises(InvalidRequestError) as wait:
            await client.invoices.wait_for_download("a/b", timeout=-1, poll=0)
        with pytest.raises(InvalidRequestError) as settle:
            await client.payments.settle_reminder("a/b", "c", until=bool, timeout=0)

    names = [
        [each.partition(":")[0] for each in found.value.problems]
        for found in (create, wait, settle)
    ]
    assert [sorted(each) for each in names] == [
        ["on_lost_secret", "tag", "url"],
        ["poll", "request_id", "timeout"],
        ["operation_id", "payment_id", "timeout"],
    ]


async def test_batch_of_a_file_that_is_not_there(tmp_path):
    """It is refused in words, as a file that is not well-formed is."""
    client = Client("http://127.0.0.1:1/v2", ApiKey("key"))
    async with client, Batch.open(tmp_path / "run.db", client) as batch:
        with pytest.raises(InvalidRequestError, match=r"none\.jsonl: cannot be read"):
            await anext(batch.run(tmp_path / "none.jsonl"))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("url", "(await write).url, or portal.call(write).url without async"),
        ("secret", "(await write).secret, or portal.call(write).secret without async"),
        (
            "verdict",
            "(await write.outcome()).verdict, or portal.call(write.outcome()).verdict without async",
        ),
    ],
)
async def test_write_that_was_not_awaited(name, told):
    """Whoever reads a field of the answer from the write itself is told what to write instead."""
    async with Client("http://127.0.0.1:1/v2", ApiKey("key")) as client:
        write = client.webhooks.create(
            url="https://me.example/in", events=["invoice.created"]
        )
        with pytest.raises(AttributeError) as caught:
            getattr(write, name)
        assert str(caught.value).endswith(f"Write {told}.")
        assert not hasattr(write, "__name__")
        write.close()


async def test_list_that_is_not_iterated_by_async_for():
    """The error says which loop to write, whoever asks for items."""
    async with Client("http://127.0.0.1:1/v2", ApiKey("key")) as client:
        pages = client.invoices.egress()
        for ask in (list, iter, sorted):
            with pytest.raises(TypeError, match=r"`async for`.*portal\.iterate"):
                ask(pages)


def test_journal_that_another_process_has(tmp_path):
    """The error names PostgreSQL, where several processes share a journal."""
    holder = subprocess.Popen(  # noqa: S603 - our own
        [sys.executable, "-c", HOLDS, str(tmp_path / "calls.db")],
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout.readline()
        portal = Portal(
            lambda: Client(
                "http://127.0.0.1:1/v2", ApiKey("key"), journal=tmp_path / "calls.db"
            )
        )
        with (
            pytest.raises(
                JournalError, match=f"in use by process {holder.pid} .*postgresql://"
            ),
            portal,
        ):
            pass
        holder.kill()


def test_counts_of_a_batch_as_text():
    """Verdicts are words in what print shows, as they are in reports."""
    counts = {Verdict.APPLIED: 3, Verdict.UNKNOWN: 1}
    summary = Summary(verdicts=counts)
    progress = Progress(
        done=4,
        skipped=0,
        under_way=0,
        settling=0,
        rate=1.0,
        seconds=4.0,
        verdicts=counts,
    )
    result = Result(
        key="row-1", operation="webhooks.create", verdict=Verdict.NOT_APPLIED
    )
    for shown in (summary, progress):
        assert "verdicts={'applied': 3, 'unknown': 1}" in str(shown)
    assert "verdict='not applied'" in str(result)
