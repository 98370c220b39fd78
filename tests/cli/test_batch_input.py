"""`invsvc batch`: standard input, inputs that are incomplete, and skipped lines."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from invsvc_async.batch import Batch
from tests.batch.conftest import client_of
from tests.batch.writing import SECRETS, all_of, creates
from tests.cli.test_batch import here, invsvc, line, write_file
from tests.support.database import database

__all__ = ["here", "invsvc"]

pytestmark = pytest.mark.one_python


@pytest.mark.slow
async def test_standard_input(service, here):
    """`-` is read to its end, checked and sent; the same input is skipped afterwards."""
    text = "".join(json.dumps(line(i)) + "\n" for i in range(5)).encode()
    for data, count in ((text, 5), (text + b"not json\n", 5)):
        running = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "invsvc_async.cli", "batch", "-", "--journal", "run.db", "--json", "--no-secrets",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        out, err = await running.communicate(data)
        assert running.returncode == (2 if data.endswith(b"not json\n") else 0), err
        assert service.arrivals("webhooks.create") == count
    assert b"line 6" in err
    assert not out


async def test_file_that_is_resumed(service, invsvc, here):
    """Lines of the part that was read before are not checked again, except by a dry run; they still count."""
    file = write_file(here / "writes.jsonl", *map(line, range(200)))
    await invsvc(file, "--journal", "run.db", "--no-secrets")
    write_file(file, *map(line, range(202)))
    _, _, err = await invsvc(file, "--journal", "run.db", "--no-secrets", "--dry-run")
    assert "202 valid writes" in err
    code, out, _ = await invsvc(file, "--journal", "run.db", "--no-secrets", "--json")
    found = json.loads(out)
    assert (code, found["done_now"], found["skipped"], found["open_inputs"]) == (
        0,
        2,
        200,
        0,
    )
    assert service.arrivals("webhooks.create") == 202


async def test_incomplete_input_in_reports(service, invsvc, here):
    """The report shows it until an input of the batch is read to its end."""

    def failing(client):
        yield from creates(client, 3)
        raise RuntimeError("the producer died")

    async with (
        client_of(service) as client,
        Batch.open(here / "run.db", client, **SECRETS) as batch,
    ):
        with pytest.raises(RuntimeError):
            await all_of(batch, failing(client))
    _, out, _ = await invsvc("report", "run.db")
    assert "incomplete: run it again to its end" in out
    assert (
        json.loads((await invsvc("report", "run.db", "--json"))[1])["open_inputs"] == 1
    )
    other = write_file(here / "other.jsonl", line(9))
    assert (await invsvc(other, "--journal", "run.db", "--no-secrets"))[0] == 0
    _, out, _ = await invsvc("report", "run.db")
    assert "incomplete" not in out


async def test_exit_code_of_an_incomplete_input(service, invsvc, here):
    """It is 5 while another worker of a shared batch has not read its input to its end."""
    journal = database().journal("exitincomplete", silence=60)
    begun, ends = asyncio.Event(), asyncio.Event()

    async def slow():
        for write in creates(client, 3):
            yield write
        begun.set()
        await ends.wait()

    file = write_file(here / "writes.jsonl", *map(line, range(5)))
    async with (
        client_of(service) as client,
        Batch.open(journal, client, **SECRETS) as batch,
    ):
        feeding = asyncio.create_task(all_of(batch, slow()))
        await begun.wait()
        code, out, _ = await invsvc(file, "--journal", journal, "--no-secrets")
        assert code == 5
        assert "incomplete" in out
        ends.set()
        await feeding
    assert (await invsvc(file, "--journal", journal, "--no-secrets"))[0] == 0
