"""
What a block of calls costs: CPU time or, in a process that valgrind runs, instructions of the processor.

Instructions hardly depend on what else the machine does. They are those of Python, of C and of all threads,
not those of the kernel. Valgrind writes down what it has counted in a new file whenever the process calls
``os.getppid``, and counts from zero again.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["IS_COUNTED", "can_count", "counting", "instructions_of", "restart", "spent"]

_PLACE = "INVSVC_BENCHMARKS_COUNTS"  # where valgrind writes, if it runs this process
_COUNTS = os.environ.get(_PLACE)
IS_COUNTED = _COUNTS is not None
_TOTAL = re.compile(r"^totals: (\d+)", re.MULTILINE)
_files = 0
_started = 0


def restart() -> None:
    """Begin a block."""
    global _started  # noqa: PLW0603 - one block at a time
    _started = _mark() if IS_COUNTED else time.process_time_ns()


def spent() -> int:
    """Return what the block cost since :func:`restart`: nanoseconds of CPU time, or instructions."""
    if not IS_COUNTED:
        return time.process_time_ns() - _started
    first = _started + 1
    # Other libraries may have asked for the parent process, too.
    return sum(_total(_file(number)) for number in range(first, _mark() + 1))


def _mark() -> int:
    """Let valgrind write down what it has counted; return the number of that file."""
    global _files  # noqa: PLW0603 - of this process
    os.getppid()
    while _file(_files + 1).exists():
        _files += 1
    return _files


def _file(number: int) -> Path:
    return Path(f"{_COUNTS}.{number}")


def can_count() -> bool:
    """Return whether valgrind is installed."""
    return shutil.which("valgrind") is not None


def counting(place: Path) -> tuple[list[str], dict[str, str]]:
    """Return the beginning of a command whose blocks are counted in files at *place*, and its environment."""
    command = [
        *("valgrind", "--quiet", "--tool=callgrind", "--dump-before=getppid"),
        f"--callgrind-out-file={place}",
    ]
    return command, os.environ | {_PLACE: str(place)}


def instructions_of(arguments: Sequence[str], env: Mapping[str, str]) -> int:
    """Return how many instructions Python takes with *arguments*, from its start to its end."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "counts"
        command, _ = counting(place)
        subprocess.run(
            [*command, sys.executable, *arguments],
            check=True,
            capture_output=True,
            env=env,
        )
        return _total(place)


def _total(file: Path) -> int:
    found = _TOTAL.search(file.read_text())
    assert found is not None
    return int(found[1])
