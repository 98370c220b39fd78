"""The console that the commands print to."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from invsvc_async.cli.visible_text import visible

__all__ = ["EscapingConsole"]


class EscapingConsole(Console):
    """A console that shows control characters instead of obeying them: texts come from the service."""

    def print(self, *objects: Any, **options: Any) -> None:  # Any: as in rich
        """Print as rich does, with control characters as escape sequences of Python."""
        super().print(*(visible(each) if isinstance(each, str) else each for each in objects), **options)

    def on_broken_pipe(self) -> None:
        """Raise the error again: rich would end the process with 1, whatever the result is."""
        raise  # noqa: PLE0704 - it is called while the error is handled
