"""A spinner on stderr, if it is a terminal: what a command waits for, and how long at most."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from invsvc_async.cli.output import console, is_terminal, note
from invsvc_async.cli.visible_text import visible

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager

    from rich.text import Text

    from invsvc_async.client import Client
    from invsvc_async.transport.session import DecisionReport

__all__ = ["WaitingForWrite", "waiting", "waiting_for_read"]

_SILENCE = 1.0  # s before the spinner appears
_DOUBT = "the answer is ambiguous: reading the state (Ctrl-C stores the intent for `invsvc settle`)"
_STEPS = {"read": "reading the state", "wait": "waiting for late effects before the next read"}


class _Message:
    """What is waited for, with the time limit; rich renders it several times per second."""

    def __init__(self, words: str, seconds: float) -> None:
        self.set(words, seconds)

    def set(self, words: str, seconds: float) -> None:
        """Replace the words; *seconds* is the limit from now on."""
        self._words, self._until = visible(words), time.monotonic() + seconds

    def __rich__(self) -> Text:
        from rich.text import Text  # imported if there is a terminal

        left = max(0.0, self._until - time.monotonic())
        return Text(f"{self._words} (at most {left:.0f} s)", style="dim")


@contextmanager
def _spinner(message: _Message, *, shown: bool = True) -> Generator[None]:
    """Show *message* after a second, until the block ends.  Needs a running event loop."""
    if not (shown and is_terminal(sys.stderr)):
        yield
        return
    status = console(stderr=True).status(message, spinner_style="none")
    timer = asyncio.get_running_loop().call_later(_SILENCE, status.start)
    try:
        yield
    finally:
        timer.cancel()
        status.stop()


def waiting(words: str, seconds: float) -> AbstractContextManager[None]:
    """Show *words* and the limit in *seconds*, from the first silent second to the end of the block."""
    return _spinner(_Message(words, seconds))


def waiting_for_read(client: Client, what: str, *, shown: bool = True) -> AbstractContextManager[None]:
    """Show that a read, with its retries, has not been answered yet."""
    from invsvc_async.client import options_of

    message = _Message(f"waiting for the answer to {what}", options_of(client).timeouts.call)
    return _spinner(message, shown=shown)


class WaitingForWrite:
    """Shows what a write waits for.  `on_decision` is a hook of `Client`."""

    def __init__(self) -> None:
        self._message = _Message("", 0.0)
        self._attempt = self._deadline = 0.0  # s
        self._sent = False
        self._until: float | None = None  # the end of settling

    @contextmanager
    def shown(self, client: Client) -> Generator[None]:
        """Show the spinner until the write ends."""
        from invsvc_async.client import options_of

        options = options_of(client)
        self._attempt, self._deadline = options.timeouts.attempt, options.reconcile.deadline
        self._message.set("waiting for other writes to the same resource", self._deadline)
        with _spinner(self._message):
            yield

    def on_decision(self, report: DecisionReport) -> None:
        """Replace the words by those of the write's next step."""
        if report.decision == "send":
            self._message.set(f"waiting for the answer to {report.operation}", self._attempt)
            self._sent = True
            return
        if self._sent and self._until is None:
            self._until = time.monotonic() + self._deadline
            if is_terminal(sys.stderr) and report.decision in _STEPS:
                note(_DOUBT)
        if report.decision in _STEPS:
            lead = f"{report.operation}: no clear answer" if self._sent else report.operation
            left = self._deadline if self._until is None else self._until - time.monotonic()
            self._message.set(f"{lead}; {_STEPS[report.decision]}", left)
