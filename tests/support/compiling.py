"""
Compile test files, before the workers of pytest start: each of them would compile all of those at the same time.

    python -m tests.support.compiling @FILE

pytest compiles a file, with its assertions rewritten, when it collects it.  So each core collects a part of the files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
FEW = 20  # which take less time than to start a process


def _is_compiled(file: Path) -> bool:
    """Return whether pytest has compiled *file* on this Python since it was changed."""
    name = f"{file.stem}.{sys.implementation.cache_tag}-pytest-*.pyc"
    changed = file.stat().st_mtime
    found = (file.parent / "__pycache__").glob(name)
    return any(each.stat().st_mtime >= changed for each in found)


def _start(part: list[str], folder: str) -> subprocess.Popen[bytes]:
    """Start to collect the files of *part*; what is wrong with them is told when they run."""
    command = [sys.executable, "-m", "pytest", "-qq", "--collect-only", *part]
    return subprocess.Popen(  # noqa: S603 - our own arguments
        command,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": folder},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def main() -> None:
    """Compile those of the files that need it."""
    [listed] = sys.argv[1:]
    files = Path(listed.removeprefix("@")).read_text(encoding="utf-8").split("\n")
    new = [each for each in files if not _is_compiled(ROOT / each)]
    if len(new) <= FEW:
        return
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        started = [_start(new[core::cores], folder) for core in range(cores)]
        for each in started:
            each.wait()


if __name__ == "__main__":
    main()
