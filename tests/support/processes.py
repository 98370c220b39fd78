"""The processes of this machine, as ``/proc`` shows them."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator


def _processes() -> Iterator[tuple[int, int]]:
    """Yield the processes and their parents."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            text = (folder / "stat").read_text().rpartition(")")[2]
            yield int(folder.name), int(text.split()[1])


def below(root: int) -> list[int]:
    """Return the process *root*, and those that it or they have started."""
    found = {root}
    pairs = sorted(_processes())
    size = 0
    while size != len(found):  # a parent may have a higher number
        size = len(found)
        found |= {pid for pid, parent in pairs if parent in found}
    return sorted(found)


def in_session(leader: int) -> list[int]:
    """Return the processes of a session and what they have started, also those whose parents have ended."""
    found = set(below(leader))
    for pid, _ in _processes():
        with suppress(OSError):
            if os.getsid(pid) == leader:
                found.add(pid)
    return sorted(found)


def command_of(pid: int) -> str:
    """Return the command line of a process."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/cmdline").read_text(
            encoding="utf-8", errors="replace"
        )
        return text.replace("\0", " ")
    return ""


def kill_session(leader: subprocess.Popen[str]) -> None:
    """Kill all processes of the session of *leader*, and wait for its end."""
    for pid in in_session(leader.pid)[::-1]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    leader.wait()
