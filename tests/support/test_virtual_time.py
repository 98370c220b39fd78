"""The loops in virtual time: nothing is waited for, nothing real is overtaken."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.support.virtual_time import (
    JumpingLoop,
    LoopClock,
    SteadyLoop,
    VirtualTimeLoop,
    run_jumping,
)

pytestmark = pytest.mark.untraced


def test_a_day_passes_at_once():
    """Timers fire in their order, and a day of them takes no time."""

    async def main(loop):
        begun, woken = loop.time(), []

        async def sleep(seconds):
            await LoopClock(ahead=5.0).sleep(seconds)
            woken.append((seconds, loop.time() - begun))

        await asyncio.gather(*(sleep(seconds) for seconds in (86_400.0, 15.0, 0.5)))
        return woken

    real = time.monotonic()
    woken = run_jumping(main)
    assert [seconds for seconds, _ in woken] == [0.5, 15.0, 86_400.0]
    assert all(0 <= passed - seconds < 0.01 for seconds, passed in woken)
    assert time.monotonic() - real < 60


def test_an_answer_is_not_overtaken():
    """An exchange over a real socket takes milliseconds of virtual time, though a timer waits for hours."""

    async def main(loop):
        async def answer(reader, writer):
            writer.write(await reader.readline())
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            host, port = server.sockets[0].getsockname()
            begun = loop.time()
            for _ in range(200):
                async with asyncio.timeout(3600):
                    reader, writer = await asyncio.open_connection(host, port)
                    writer.write(b"hello\n")
                    assert await reader.readline() == b"hello\n"
                    writer.close()
                    await writer.wait_closed()
            return loop.time() - begun

    assert run_jumping(main) < 60


def test_time_stands_while_bytes_are_in_flight():
    """No timer fires while something may be on its way, until that is given up."""

    async def main(loop):
        clockwork, looked = loop.clockwork, []

        def in_flight():
            looked.append(loop.time())
            return len(looked) < 5 and not given_up

        given_up = []
        clockwork.in_flight, clockwork.give_up = (
            in_flight,
            lambda: given_up.append(loop.time()),
        )
        await asyncio.sleep(3600)
        return looked, given_up

    looked, _ = run_jumping(main)
    assert len(looked) >= 5
    assert looked[4] - looked[0] < 0.1


def test_nothing_to_do_is_an_error(monkeypatch):
    """A program that waits for what can never come ends, in words."""
    monkeypatch.setattr("tests.support.virtual_time._STUCK_AFTER", 0.05)

    async def main(loop):
        await loop.create_future()

    with pytest.raises(RuntimeError, match="nothing to do"):
        run_jumping(main)


def test_no_two_stamps_are_the_same():
    """Stamps follow the clock, and tell apart what happens in one turn."""
    loop = JumpingLoop()
    try:
        stamps = [loop.stamp() for _ in range(1000)]
        assert sorted(set(stamps)) == stamps
        assert stamps[-1] - loop.time() < 1e-4
        assert loop.wall() - loop.time() > 1e9
    finally:
        loop.close()


@pytest.mark.parametrize("kind", [VirtualTimeLoop, SteadyLoop, JumpingLoop])
def test_time_stands_while_the_machine_is_busy(kind):
    """What takes long makes no timer fire; and one that is due fires after its time."""

    async def main():
        loop = asyncio.get_running_loop()
        begun = loop.time()
        time.sleep(0.2)  # noqa: ASYNC251 # sleeps: as a machine that does something else
        await asyncio.sleep(0)
        busy = loop.time()
        await asyncio.sleep(0.02)
        return busy - begun, loop.time() - busy

    with asyncio.Runner(loop_factory=kind) as runner:
        stood, passed = runner.run(main())
    assert stood < 0.01
    assert 0.02 <= passed < 0.1
