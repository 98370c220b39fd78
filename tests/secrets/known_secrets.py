"""
Remember every secret that is given out, and all that could show one; find the one in the other.

Must never change what it watches.
"""

from __future__ import annotations

import logging
import pickle
import traceback
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async import Intent, InvsvcError, Outcome
from invsvc_async.models.common import Model
from invsvc_async.transport.client_core import AttemptReport, DecisionReport

if TYPE_CHECKING:
    from pathlib import Path

KEPT = 3_000  # of the newest things of each test that are looked at
SHORTEST = 10  # characters: a shorter text is a test's stand-in, and found in anything
# how the files of ``--secrets-to`` are called in tests
ASKED_FOR = ("secrets", "invsvc-secrets.jsonl")
PICKLED = (Intent, Outcome, InvsvcError, AttemptReport, DecisionReport)


class Marks(logging.Handler):
    """The secrets of this process, and what may show them: things, texts, and what was logged."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.secrets: set[str] = set()
        self.things: deque[Any] = deque(maxlen=KEPT)
        self.said: deque[str] = deque(maxlen=20_000)

    def clear(self) -> None:
        """Forget what may show a secret."""
        self.things.clear()
        self.said.clear()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a log record as text, arguments and exception included."""
        told = _said(record.exc_info[1]) if record.exc_info else ""
        self.said.append(
            f"log: {record.getMessage()} {record.args!r} {vars(record)!r} {told}"
        )

    def say(self, place: str, *texts: object) -> None:
        """Keep *texts* that were shown or stored at *place*."""
        self.said.extend(f"{place}: {text}" for text in texts if text)

    def issue(self, secret: str | bytes) -> str:
        """Remember *secret*, unless it is a stand-in."""
        text = secret if isinstance(secret, str) else secret.decode("latin-1")
        if len(text) >= SHORTEST:
            self.secrets.add(text)
        return text

    def hits(self) -> list[str]:
        """Name everything that shows a secret."""
        texts = [*self.said]
        for thing in tuple(self.things):  # to show one can make others
            texts += shown(thing)
        return [self._named(text) for text in texts if self.finds(text)]

    def finds(self, text: str | bytes) -> bool:
        """Return whether *text* contains a secret, or the signature of a token."""
        plain = text if isinstance(text, str) else text.decode("latin-1")
        return any(secret in plain or _tail(secret) in plain for secret in self.secrets)

    def files(self, folder: Path) -> list[str]:
        """Name the journals, stores and reports below *folder* that hold a secret; programs are their readers'."""
        named = (
            path for path in folder.rglob("*") if not path.name.startswith(ASKED_FOR)
        )
        found = (
            path
            for path in named
            if path.is_file() and path.suffix not in {".py", ".pyc"}
        )
        return [f"file: {path}" for path in found if self.finds(_content(path))]

    def _named(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "<<SECRET>>").replace(
                _tail(secret), "<<SECRET>>"
            )
        at = max(0, text.find("<<SECRET>>") - 200)
        return f"{text.partition(':')[0]}: {text[at : at + 400]}"


def _tail(secret: str) -> str:
    """Return the part of a token that must not be shown alone either."""
    tail = secret.rpartition(".")[2]
    return tail if len(tail) >= SHORTEST else secret


def _content(path: Path) -> str | bytes:
    """Return the content of a file; packed columns of a table are unpacked."""
    if path.suffix != ".parquet":
        return path.read_bytes()
    from pyarrow import parquet

    return str(parquet.read_table(path).to_pylist())


def _said(error: BaseException | None) -> str:
    """
    Return the text of a traceback without the lines of source, because a test's source may contain its
    secret.
    """
    if error is None:
        return ""
    return f"{''.join(traceback.format_exception_only(error))}{_said(error.__cause__ or error.__context__)}"


def shown(thing: Any) -> list[str]:
    """Return every text that can be made of *thing*: repr, str, pickle, JSON, explanation, traceback."""
    if isinstance(thing, Outcome) and not isinstance(thing.value, Model):
        # plain data is the caller's, who asked for it by path
        thing = attrs.evolve(thing, value=None)
    texts = [f"repr: {thing!r}", f"str: {thing}"]
    if isinstance(thing, Outcome):
        texts += (
            [f"story: {thing.explain()}", f"story as JSON: {thing.to_json()}"]
            if thing.history
            else []
        )
        # a webhook's secret is the caller's too: it pickles
        thing = attrs.evolve(thing, value=None)
    if isinstance(thing, Intent):
        with suppress(InvsvcError):
            texts.append(f"intent: {thing.to_json()}")
    if isinstance(thing, InvsvcError):
        texts.append(f"traceback: {_said(thing)}")
    if isinstance(thing, PICKLED):
        with suppress(TypeError, AttributeError, RecursionError, pickle.PicklingError):
            texts.append(
                f"pickle of {type(thing).__name__}: {pickle.dumps(thing).decode('latin-1')}"
            )
    if hasattr(thing, "to_json") and hasattr(thing, "end_time"):
        texts.append(f"span: {thing.to_json()}")
    return texts
