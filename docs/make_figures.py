"""Keep what a long command prints as a fragment of the pages: ``python docs/make_figures.py exhaustive``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
COMMANDS = {"exhaustive": ("-m", "tests.exhaustive")}


def fragment(printed: str) -> str:
    """Show what was printed as it is."""
    return f"```text\n{printed.rstrip()}\n```\n"


def main() -> None:
    """Run those that were asked for, or all."""
    for name in sys.argv[1:] or COMMANDS:
        command = [sys.executable, *COMMANDS[name]]
        ran = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=True)  # noqa: S603
        (HERE / "_generated" / f"{name}.md").write_text(fragment(ran.stdout), encoding="utf-8")


if __name__ == "__main__":
    main()
