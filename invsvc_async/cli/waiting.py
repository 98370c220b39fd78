"""A spinner on stderr, if it is a terminal: what a command waits for, and how long at most."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from invsvc_async.cli.output import console, is_terminal, note
from invsvc_async.cli.visible_text import visible

if TYPE_CHECKING:
    from collections.abc import Generator

    from rich.text import Text

    from invsvc_async.client import Client
    from invsvc_async.transport.session import DecisionReport

__all__ = ["Waiting", "WaitingForWrite", "waiting_for_read"]

_SILENCE = 1.0  # s before the spinner appears
_DOUBT = "the answer is ambiguous: reading the state (Ctrl-C stores the intent for `invsvc settle`)"
_STEPS = {"read": "reading the state", "wait": "waiting for late effects before the next read"}


class Waiting:
    """What is waited for, with the limit in seconds; rich renders it several times per second."""

    def __init__(self, words: str = "", seconds: float = 0.0) -> None:
        self.set(words, seconds)

    def set(self, words: str, seconds: float) -> None:
        """Replace the words; *seconds* is the limit from now on."""
        self._words, self._until = visible(words), time.monotonic() + seconds

    def __rich__(self) -> Text:
        from rich.text import Text  # imported if there is a terminal

        left = max(0.0, self._until - time.monotonic())
        return Text(f"{self._words} (at most {left:.0f} s)", style="dim")

    @contextmanager
    def spinning(self, *, shown: bool = True) -> Generator[None]:
        """Show it from the first silent second to the end of the block.  Needs a running event loop."""
        if not (shown and is_terminal(sys.stderr)):
            yield
            return
        status = console(stderr=True).status(self, spinner_style="none")
        timer = asyncio.get_running_loop().call_later(_SILENCE, status.start)
        try:
            yield
        finally:
            timer.cancel()
            status.stop()


def waiting_for_read(client: Client, what: str, *, shown: bool = True) -> AbstractContextManager[None]:
    """Show that a read, with its retries, has not been answered yet."""
    from invsvc_async.client import options_of

    limit = options_of(client).timeouts.call
    return Waiting(f"waiting for the answer to {what}", limit).spinning(shown=shown)


class WaitingForWrite(Waiting):
    """Shows what a write waits for.  `on_decision` is a hook of `Client`."""

    _attempt = _deadline = 0.0  # s
    _sent = False
    _settled_by: float | None = None  # the end of settling

    def shown(self, client: Client) -> AbstractContextManager[None]:
        """Show the spinner until the write ends."""
        from invsvc_async.client import options_of

        options = options_of(client)
        self._attempt, self._deadline = options.timeouts.attempt, options.reconcile.deadline
        self.set("waiting for other writes to the same resource", self._deadline)
        return self.spinning()

    def on_decision(self, report: DecisionReport) -> None:
        """Replace the words by those of the write's next step."""
        if report.decision == "send":
            self.set(f"waiting for the answer to {report.operation}", self._attempt)
            self._sent = True
            return
        if self._sent and self._settled_by is None:
            self._settled_by = time.monotonic() + self._deadline
            if is_terminal(sys.stderr) and report.decision in _STEPS:
                note(_DOUBT)
        if report.decision in _STEPS:
            lead = f"{report.operation}: no clear answer" if self._sent else report.operation
            left = self._deadline if self._settled_by is None else self._settled_by - time.monotonic()
            self.set(f"{lead}; {_STEPS[report.decision]}", left)
