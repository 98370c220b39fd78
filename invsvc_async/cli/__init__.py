"""Entry point of the ``invsvc`` command line."""

from __future__ import annotations

import sys

__all__ = ["main"]

_INTERRUPTED = 130  # the exit code of shells for SIGINT
_EXTRA = ("typer", "rich", "click")


def main() -> None:
    """Run ``invsvc`` with the arguments of this process and exit with its exit code."""
    try:
        from invsvc_async.cli.app import run

        code = run(sys.argv[1:])
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        sys.stderr.write(
            f"invsvc: needs {error.name}. Install invsvc-async with its extra 'cli'.\n"
        )
        sys.exit(2)
    except KeyboardInterrupt:  # before or after a command, which handles it
        sys.exit(_INTERRUPTED)
    sys.exit(code)
