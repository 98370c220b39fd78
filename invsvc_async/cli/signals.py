"""What signals do while a command reads, asks or runs."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Final

# of a terminal that is closed; the second is that of Windows, also at Ctrl-Break
OF_TERMINALS: Final = ("SIGHUP", "SIGBREAK")


@contextmanager
def interruptible(
    handler: Callable[[int, FrameType | None], object]
    | signal.Handlers = signal.SIG_DFL,
) -> Generator[None]:
    """
    End the block at once on Ctrl-C: by *handler*, or with the process, if nothing has begun.

    An event loop would cancel its task, which takes effect only after the block.  And Python notices a signal
    that comes just before a blocking read only after that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def stop_signals() -> list[signal.Signals]:
    """Return the signals that end a run, with that of a closed terminal unless nohup ignores it."""
    return [signal.SIGINT, signal.SIGTERM, *unhandled(*OF_TERMINALS)]


def unhandled(*names: str) -> list[signal.Signals]:
    """Return the signals of this system that would end the process."""
    numbers = [signal.Signals[name] for name in names if hasattr(signal, name)]
    return [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]


@contextmanager
def stopping() -> Generator[asyncio.Event]:
    """Set the event that this yields at Ctrl-C and SIGTERM, instead of ending the command."""
    stopped = asyncio.Event()
    with handled((signal.SIGINT, signal.SIGTERM), stopped.set):
        yield stopped


@contextmanager
def handled(
    numbers: Sequence[signal.Signals], call: Callable[[], object]
) -> Generator[None]:
    """Call *call* in the running event loop at each of these signals, until the block ends."""
    loop = asyncio.get_running_loop()
    with ExitStack() as ends:
        # not the main thread
        with suppress(ValueError, RuntimeError):
            for number in numbers:
                ends.callback(_handle(loop, number, call))
        yield


def _handle(
    loop: asyncio.AbstractEventLoop,
    number: signal.Signals,
    call: Callable[[], object],
) -> Callable[[], object]:
    """
    Call *call* in *loop* at the signal; return what ends that.

    Raises:
        ValueError, RuntimeError: This is not the main thread.
    """
    try:
        loop.add_signal_handler(number, call)
    except NotImplementedError:  # Windows

        def handler(_number: int, _frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(call)

        before = signal.signal(number, handler)
        return partial(signal.signal, number, before or signal.SIG_DFL)
    return partial(loop.remove_signal_handler, number)
