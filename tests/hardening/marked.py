"""
Search what the package says, keeps and shows for the credentials and webhook secrets of a test's services.

    python -m pytest -p tests.hardening.marked tests/faults tests/batch tests/cli tests/events

As a plugin it looks after each test: a hit fails it.  Must never change what it watches.
"""

from __future__ import annotations

import logging
import pickle
import traceback
from collections import deque
from contextlib import contextmanager, suppress
from functools import wraps
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from invsvc_async import Intent, InvsvcError, Outcome, Page
from invsvc_async.client import Client
from invsvc_async.credentials import Credential
from invsvc_async.exchange import Exchange
from invsvc_async.models import Webhook
from invsvc_async.session import AttemptReport, DecisionReport, Request, View
from invsvc_async.simulator.auth import Keyring
from invsvc_async.simulator.state import State
from invsvc_async.wire import Envelope

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEPT = 500  # of the newest things of each test that are looked at
SHOWN = (
    AttemptReport, Client, Credential, DecisionReport, Envelope, Exchange, Intent, InvsvcError, Outcome, Page,
    Request, View, Webhook,
)  # fmt: skip
FILES = (".db", ".db-wal", ".db-journal", ".sqlite", ".jsonl", ".csv", ".html", ".parquet")


class Marks(logging.Handler):
    """Remembers every secret that a service of this process gave out, and all that could show one."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.secrets: set[str] = set()
        self.things: deque[Any] = deque(maxlen=KEPT)
        self.said: deque[str] = deque(maxlen=20_000)

    def clear(self) -> None:
        """Forget all."""
        self.secrets.clear()
        self.things.clear()
        self.said.clear()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a log record as text, arguments and exception included."""
        told = "".join(traceback.format_exception(record.exc_info[1])) if record.exc_info else ""
        self.said.append(f"log: {record.getMessage()} {record.args!r} {vars(record)!r} {told}")

    def issue(self, secret: str) -> str:
        """Remember *secret*."""
        self.secrets.add(secret)
        return secret

    def hits(self) -> list[str]:
        """Name everything that shows a secret."""
        texts = [*self.said]
        for thing in tuple(self.things):  # to show one can make others
            texts += shown(thing)
        return [self._named(text) for text in texts if self.finds(text)]

    def finds(self, text: str | bytes) -> bool:
        """Tell whether *text* holds a secret, or the signature of a token."""
        plain = text if isinstance(text, str) else text.decode("latin-1")
        return any(secret in plain or _tail(secret) in plain for secret in self.secrets)

    def _named(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "<<SECRET>>").replace(_tail(secret), "<<SECRET>>")
        at = max(0, text.find("<<SECRET>>") - 200)
        return text[at : at + 400]


def _tail(secret: str) -> str:
    """Give the part of a token that must not be shown alone either."""
    return secret.rpartition(".")[2]


def shown(thing: Any) -> list[str]:
    """Give every text that can be made of *thing*: repr, str, pickle, JSON, story, traceback."""
    texts = [f"repr: {thing!r}", f"str: {thing}"]
    if isinstance(thing, Outcome):
        texts += [f"story: {thing.explain()}", f"story as JSON: {thing.to_json()}"] if thing.history else []
        thing = attrs.evolve(thing, value=None)  # a webhook's secret is the caller's, who was given it
    if isinstance(thing, Intent):
        with suppress(InvsvcError):
            texts.append(f"intent: {thing.to_json()}")
    if isinstance(thing, InvsvcError):
        texts.append("traceback: " + "".join(traceback.format_exception(thing)))
    if isinstance(thing, (Intent, Outcome, InvsvcError, AttemptReport, DecisionReport)):
        with suppress(TypeError, AttributeError, pickle.PicklingError):
            texts.append(f"pickle of {type(thing).__name__}: {pickle.dumps(thing).decode('latin-1')}")
    return texts


def files_with_secrets(marks: Marks, folder: Path) -> list[str]:
    """Name the journals, stores and reports below *folder* that hold one of *marks*."""
    return [
        f"file: {path}"
        for path in folder.rglob("*")
        if path.is_file() and path.name.endswith(FILES) and marks.finds(path.read_bytes())
    ]


@contextmanager
def marking() -> Iterator[Marks]:
    """Watch what the simulator gives out and what the package makes, until the block ends."""
    marks = Marks()
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(marks)
    undo = [_watch(cls, marks.things.append) for cls in SHOWN]
    undo.append(_wrap(Keyring, "issue", marks.issue))
    undo.append(_wrap(State, "new_id", lambda made: made.startswith("whsec_") and marks.issue(made)))
    loud = logging.getLogger("invsvc_async")
    was = loud.level
    loud.setLevel(logging.DEBUG)
    try:
        yield marks
    finally:
        loud.setLevel(was)
        for each in undo:
            each()
        root.removeHandler(marks)
        root.setLevel(level)


def _watch(cls: type, note: Any) -> Any:
    original = cls.__init__

    @wraps(original)
    def watched(self, *arguments, **named):
        original(self, *arguments, **named)
        note(self)

    cls.__init__ = watched
    return lambda: setattr(cls, "__init__", original)


def _wrap(cls: type, name: str, note: Any) -> Any:
    original = getattr(cls, name)

    @wraps(original)
    def noting(*arguments, **named):
        made = original(*arguments, **named)
        note(made)
        return made

    setattr(cls, name, noting)
    return lambda: setattr(cls, name, original)


# --- as a plugin


def pytest_configure(config: pytest.Config) -> None:
    """Watch the whole run."""
    watching = marking()
    config.stash[_MARKS] = watching.__enter__()
    config.add_cleanup(lambda: watching.__exit__(None, None, None))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Look, once a test has passed, at all that it made, said and wrote."""
    result = yield
    marks = item.config.stash[_MARKS]
    found = marks.hits()
    if "tmp_path" in getattr(item, "funcargs", {}):
        found += files_with_secrets(marks, item.funcargs["tmp_path"])
    assert not found, "\n".join(found[:10])
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Begin anew with each test."""
    try:
        return (yield)
    finally:
        item.config.stash[_MARKS].things.clear()
        item.config.stash[_MARKS].said.clear()


_MARKS = pytest.StashKey[Marks]()
