"""What every test rests on."""

from __future__ import annotations

import gc
import logging
import signal
import threading
from logging.handlers import QueueHandler

import pytest

# A shell that runs the suite in the background has it ignore Ctrl-C, which the programs that tests start would
# inherit: those that are interrupted on purpose would never end.
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Take what was imported and collected out of each later garbage collection: a twelfth of the CPU time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def root_logger_restored():
    """Remove what a Litestar application, when it is made, adds to the root logger of the process."""
    root = logging.getLogger()
    level = root.level
    yield
    for handler in [each for each in root.handlers if isinstance(each, QueueHandler)]:
        root.removeHandler(handler)
    root.setLevel(level)
