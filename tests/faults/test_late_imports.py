"""Writes in a process that has no descriptors left, in which no module can be imported any more."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.one_python, pytest.mark.slow]

PROGRAM = """
import asyncio, errno, sys
from invsvc_async import Verdict
from invsvc_async.testing import quick_client
from invsvc_async.simulator import Simulator

class NoFiles:
    def find_spec(self, name, path=None, target=None):
        raise OSError(errno.EMFILE, "Too many open files", name)

async def main(has_written, script):
    async with Simulator(seed=7) as service, quick_client(service) as client:
        operation, _, name = {call!r}.partition("(")[0].partition(".")
        if has_written:
            await {first}.outcome()
        write = {call}
        service.script({operation!r}, script)
        service.script({reader!r}, "503", "garbage")
        before = len(service.ledger.effects())
        sys.meta_path.insert(0, NoFiles())
        outcome = await write.outcome()
        del sys.meta_path[0]
        effects = len(service.ledger.effects()) - before
        expected = {{Verdict.APPLIED: 1, Verdict.NOT_APPLIED: 0}}
        assert expected.get(outcome.verdict, effects) == effects, (outcome.verdict, effects, outcome.message)
        print(outcome.verdict, effects, outcome.error)

asyncio.run(main(sys.argv[1] == "later", sys.argv[2]))
"""
CALLS = {
    "webhooks.create": ("client.webhooks.create(url='https://me.example/in', events=['invoice.created'])", "webhooks.list"),
    "journeys.update": ("client.journeys.update('jrn_1', name='x')", "journeys.get"),
}  # fmt: skip


@pytest.mark.parametrize("script", ["500", "apply, then reset"])
@pytest.mark.parametrize("operation", CALLS)
@pytest.mark.parametrize("when", ["first", "later"])
def test_write_when_no_module_can_be_imported(operation, when, script):
    """It is settled as ever; or nothing is sent, and the outcome says why. No error of the import comes out."""
    call, reader = CALLS[operation]
    first = call.replace("'x'", "'before'")
    code = PROGRAM.format(call=call, first=first, operation=operation, reader=reader)
    command = [sys.executable, "-W", "ignore", "-c", code, when, script]
    ran = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=False, env={**os.environ}
    )

    assert ran.returncode == 0, ran.stderr
    if when == "first":
        assert ran.stdout.startswith("not applied 0")
        assert "Too many open files" in ran.stdout
