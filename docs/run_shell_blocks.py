"""
Run the shell blocks of pages as a new user would: ``python docs/run_shell_blocks.py README.md``.

Each page gets a copy of the checkout (the files known to git) and an empty HOME.  Its blocks run one after
another in one shell that stops at the first failure.  ``--only TEXT`` runs the blocks that contain TEXT.
Without pages, it runs those that a reader can follow step by step.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from blocks import TO_THE_LETTER, blocks_of

NAMED = re.compile(r"# (\w+\.py)\n")
ROOT = Path(__file__).parents[1]
KEPT = (
    "PATH", "LANG", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CONFIG_FILE",
    "PYENV_VERSION", "PYENV_ROOT",
)  # fmt: skip


def copied(to: Path) -> Path:
    """Copy the files that git knows or would add to *to*."""
    git = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603 - git
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return to


def save_files(page: Path, to: Path) -> None:
    """Save the Python blocks that begin with a file name, as the page asks its readers to."""
    for block in blocks_of(page, "python"):
        if found := NAMED.match(block.code):
            (to / found[1]).write_text(block.code, encoding="utf-8")


def script_of(page: Path, only: str | None) -> str:
    """Return the blocks of *page* as one script that announces each."""
    lines = ["set -euo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for block in blocks_of(page, "sh"):
        if only is None or only in block.code:
            lines += [f"echo '--- {page.name}, line {block.line}'", block.code]
    return "\n".join(lines)


def run(page: Path, only: str | None) -> int:
    """Run the blocks of one page and return the shell's exit code."""
    with (
        tempfile.TemporaryDirectory() as home,
        tempfile.TemporaryDirectory() as checkout,
    ):
        environment = {
            name: os.environ[name] for name in KEPT if name in os.environ
        } | {"HOME": home}
        command = ["bash", "-c", script_of(page, only)]
        save_files(page, copied(Path(checkout)))
        return subprocess.run(  # noqa: S603
            command, cwd=checkout, env=environment, check=False
        ).returncode


def main() -> int:
    """Run the requested pages."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument(
        "pages", nargs="*", type=Path, default=[ROOT / page for page in TO_THE_LETTER]
    )
    arguments.add_argument("--only")
    asked = arguments.parse_args()
    failed = [str(page) for page in asked.pages if run(page.resolve(), asked.only)]
    sys.stdout.write(
        f"failed: {', '.join(failed)}\n" if failed else "every block passed\n"
    )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
