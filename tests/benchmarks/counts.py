"""
What some usual calls cost in bytecode instructions of the package, counted rather than timed.

The same code gives the same counts on any machine and at any load, for one version of Python. Simulator, aiohttp
and the interpreter's C code are not counted, so that a count says nothing about time. It says whether the
package does much more than it did.

    python -m tests.benchmarks.counts     print the counts, in the form of counts.toml
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from contextlib import AsyncExitStack, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import invsvc_async
from benchmarks import bench_events, bench_page, bodies
from invsvc_async import ApiKey, Client, ReconcilePolicy
from invsvc_async.durable.entry import State
from invsvc_async.events import Receiver, SharedHeader
from invsvc_async.simulator import Simulator
from tests.durable import stores
from tests.support.inline_writer import InlineWriter
from tests.support.virtual_time import LoopClock, VirtualTimeLoop, service_clock

_FOLDER = os.path.dirname(invsvc_async.__file__) + os.sep  # noqa: PTH120 - as in the names of code
_GENERATED = "<"  # how attrs and the decoders name code that they generate
_TOOL = 4  # of sys.monitoring: no usual number
_SETTLE = ReconcilePolicy(settle_after_error=0.05, settle_after_loss=0.05)
_HEADERS = {"X-Key": "value", "Content-Type": "application/json"}


class _Instructions:
    """Count the instructions of the package, of the code that attrs and the decoders generate, too."""

    def __init__(self):
        self.number = 0

    def _trace(self, frame, event, _):
        if event == "call":
            if not _is_counted(frame.f_code):
                return None
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
        elif event == "opcode":
            self.number += 1
        return self._trace

    def _note(self, code, _):
        self.number += _is_counted(code)

    @contextmanager
    def counted(self):
        if sys.version_info < (3, 12):
            with _instead(sys.gettrace, sys.settrace, self._trace):
                yield
            return
        # Since 3.12, `settrace` does not report the first run of what it is set for while it runs.
        monitoring = sys.monitoring
        monitoring.use_tool_id(_TOOL, "counts")
        try:
            monitoring.register_callback(
                _TOOL, monitoring.events.INSTRUCTION, self._note
            )
            monitoring.set_events(_TOOL, monitoring.events.INSTRUCTION)
            yield
        finally:
            monitoring.free_tool_id(_TOOL)


@cache
def _is_counted(code):
    name = code.co_filename
    if name.startswith(_FOLDER):
        return f"{os.sep}simulator{os.sep}" not in name
    return name.startswith(_GENERATED) and "invsvc_async" in name


@contextmanager
def _instead(get, put, function):
    """Use *function* where coverage or a debugger may have its own."""
    before = get()
    put(function)
    try:
        yield
    finally:
        put(before)


async def _nothing():
    pass


async def _counted(call, before=_nothing):
    """
    Return how many instructions *call* takes, after two calls to warm up; *before* runs before each.

    The caller keeps the garbage collector from running meanwhile: finalizers of what earlier calls left would
    be counted, too.
    """
    instructions = _Instructions()
    gc.collect()
    for _ in range(2):
        await before()
        await call()
    await before()
    with instructions.counted():
        await call()
    return instructions.number


async def _of_client():
    async with AsyncExitStack() as undo:
        service = await undo.enter_async_context(
            Simulator(seed=3, clock=service_clock())
        )
        client = await undo.enter_async_context(
            Client(
                service.base_url,
                ApiKey(service.api_key),
                reconcile=_SETTLE,
                clock=LoopClock(),
            )
        )
        written = 0

        async def write():
            nonlocal written
            written += 1
            assert (
                await client.journeys.update("jrn_1", name=f"name {written}")
            ).name == f"name {written}"

        async def write_in_doubt():
            service.script("journeys.update", "apply, then 500")
            await write()

        return {
            "read": await _counted(lambda: client.journeys.get("jrn_1")),
            "write": await _counted(write),
            "write, after one in doubt": await _counted(write, before=write_in_doubt),
            "write, 500 after the effect": await _counted(write_in_doubt),
        }


async def _of_receiver():
    receiver = Receiver(
        secrets=["whsec_1"], shared_header=SharedHeader("X-Key", "value"), mode="inline"
    )
    received = []

    @receiver.on("invoice.created")
    async def handle(event):
        received.append(event.data)

    async def deliver():
        body = {
            "id": f"evt_{len(received)}", "type": "invoice.created", "created": 1_780_000_000_000,
            "livemode": True, "data": {"object": {"uuid": "u"}},
        }  # fmt: skip
        before = len(received)
        assert (await receiver.receive(json.dumps(body).encode(), _HEADERS)).outcome
        assert len(received) == before + 1

    async def verify_and_parse():
        bench_events.verify_and_parse()

    async with receiver:
        return {
            "delivery": await _counted(deliver),
            "event, verified and parsed": await _counted(verify_and_parse),
        }


async def _of_pages():
    def decoding(body):
        async def decode():
            assert len(bench_page.decode(body)) == 100

        return decode

    return {
        "page of 100 invoices": await _counted(decoding(bodies.page(following=None))),
        "page, an unknown field each": await _counted(
            decoding(bodies.page(following=None, unknown=1))
        ),
    }


class _Writer(InlineWriter):
    def delay(self):
        return 0.0


async def _of_file():
    with (
        TemporaryDirectory() as folder,
        patch("invsvc_async.durable.store.sqlite.Writer", _Writer),
    ):
        async with stores.opened(
            stores.store_of("SQLite", Path(folder), "counts")
        ) as store:
            [lane] = await stores.lanes_of(store, LoopClock())
            entries = await stores.fill(store, *map(str, range(100)))
            for entry in entries:
                entry.state = State.SENDING

            async def put():
                await asyncio.gather(*map(lane.put, entries))

            return {"100 sends stored in a file": await _counted(put)}


def measure():
    """Return the instructions of each call by its name."""
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            return {
                **runner.run(_of_client()),
                **runner.run(_of_receiver()),
                **runner.run(_of_pages()),
                **runner.run(_of_file()),
            }
    finally:
        gc.enable()


if __name__ == "__main__":
    lines = [f'["{sys.version_info.major}.{sys.version_info.minor}"]']
    lines += [f'"{name}" = {number}' for name, number in measure().items()]
    sys.stdout.write("\n".join([*lines, ""]))
