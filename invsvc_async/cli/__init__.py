"""
Start the command line, or say which extra it needs; never fail with a traceback for want of it.
"""

from __future__ import annotations

import sys

__all__ = ["main"]

_EXTRA = ("typer", "rich", "click")


def main() -> None:
    """Run ``invsvc`` with this process's arguments and end the process with its exit code."""
    try:
        from invsvc_async.cli.app import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        sys.stderr.write(f"invsvc needs {error.name}, of the extra `cli`: pip install 'invsvc-async[cli]'\n")
        sys.exit(2)
    sys.exit(run(sys.argv[1:]))
