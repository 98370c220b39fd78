"""
Search what the package says, keeps and shows for the credentials and webhook secrets of a test's services.

    python -m pytest -p tests.secrets.search_plugin

As a plugin it looks after each test: a hit fails it.  Must never change what it watches.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import subprocess
from contextlib import ExitStack, contextmanager, suppress
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from invsvc_async import Intent, InvsvcError, Outcome, Page
from invsvc_async.client import Client
from invsvc_async.events import Receipt, Receiver, Secret, SharedHeader
from invsvc_async.events.receiving.admission import Trust
from invsvc_async.models import Webhook
from invsvc_async.resources.base import Resource
from invsvc_async.simulator.auth import Keyring
from invsvc_async.simulator.state import ServiceState
from invsvc_async.transport.client_core import (
    AttemptReport,
    ClientOptions,
    DecisionReport,
)
from invsvc_async.transport.credentials import Credential, TokenProvider
from tests.secrets.known_secrets import Marks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    # the arguments of a call, and its result
    _See: TypeAlias = Callable[[tuple[Any, ...], Any], object]
    _Seen: TypeAlias = tuple[Any, str, _See]

SHOWN = (
    AttemptReport, Client, Credential, DecisionReport, Intent, InvsvcError, Outcome, Page, Receipt, Receiver,
    SharedHeader, Trust, ClientOptions, Webhook,
)  # fmt: skip
MAKERS = (  # of what has no __init__ that could be watched
    (ClientOptions, "exchange"),
    (Resource, "_request"),
    ("invsvc_async.codec.envelope", "read_success"),  # an Envelope
    ("invsvc_async.reconcile.stored_intent", "revised"),  # an Intent
)
# what their programs print and store is their readers' own
PAGES = ("docs", "examples")


def _secrets(marks: Marks) -> Iterator[_Seen]:
    """Name where secrets are given out or taken, and which part of the call is one."""
    yield Keyring, "issue", lambda _given, made: marks.issue(made)
    yield (
        ServiceState,
        "new_id",
        lambda _given, made: made.startswith("whsec_") and marks.issue(made),
    )
    yield Credential, "__init__", lambda given, _made: marks.issue(given[1])
    yield (
        TokenProvider,
        "_ask_source",
        lambda given, _made: marks.issue(given[0].ready.removeprefix("Bearer ")),
    )
    yield SharedHeader, "__init__", lambda given, _made: marks.issue(given[0].value)
    yield Secret, "__init__", lambda given, _made: marks.issue(given[0].raw)


def _shown(marks: Marks) -> Iterator[_Seen]:
    """Name where things are made that can be shown, where programs speak, and where databases are told."""
    for cls in SHOWN:
        yield cls, "__init__", lambda given, _made: marks.things.append(given[0])
    for owner, name in MAKERS:
        yield (
            import_module(owner) if isinstance(owner, str) else owner,
            name,
            lambda _, made: marks.things.append(made),
        )
    yield (
        pytest.CaptureFixture,
        "readouterr",
        lambda _given, made: marks.say("output", *made),
    )
    yield (
        subprocess.Popen,
        "communicate",
        lambda _given, made: marks.say("output", *made),
    )
    yield (
        asyncio.subprocess.Process,
        "communicate",
        lambda _given, made: marks.say("output", *made),
    )
    with suppress(ImportError):
        yield (
            import_module("opentelemetry.sdk.trace").Span,
            "end",
            lambda given, _: marks.things.append(given[0]),
        )
    with suppress(ImportError):
        connection = import_module("asyncpg").Connection
        yield (
            connection,
            "_execute",
            lambda given, _made: marks.say("database", *map(repr, given[1:])),
        )
        yield (
            connection,
            "_executemany",
            lambda given, _made: marks.say("database", *map(repr, given[1:])),
        )


@contextmanager
def marking() -> Iterator[Marks]:
    """Watch what gives secrets out and what may show them, until the block ends."""
    marks = Marks()
    loud = logging.getLogger("invsvc_async")
    was = loud.level
    with ExitStack() as stack:
        for owner, name, see in (*_secrets(marks), *_shown(marks)):
            stack.callback(_wrapped(owner, name, see))
        logging.getLogger().addHandler(marks)
        stack.callback(logging.getLogger().removeHandler, marks)
        loud.setLevel(logging.DEBUG)
        stack.callback(loud.setLevel, was)
        yield marks


def _wrapped(owner: Any, name: str, see: _See) -> Callable[[], None]:
    """Call *see* with the arguments and the result of each call; return a function that undoes it."""
    original = getattr(owner, name)

    @wraps(original)
    def seeing(*given, **named):
        made = original(*given, **named)
        see(given, made)
        return made

    @wraps(original)
    async def seeing_later(*given, **named):
        made = await original(*given, **named)
        see(given, made)
        return made

    setattr(
        owner, name, seeing_later if inspect.iscoroutinefunction(original) else seeing
    )
    return lambda: setattr(owner, name, original)


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
    marks, given = item.config.stash[_MARKS], getattr(item, "funcargs", {})
    for each in given.values():
        if isinstance(each, pytest.CaptureFixture):
            each.readouterr()  # which is seen
    found = marks.hits() + (
        marks.files(given["tmp_path"]) if "tmp_path" in given else []
    )
    if item.path.parent.name in PAGES:
        found = [each for each in found if not each.startswith(("output", "database"))]
    assert not found, "\n".join(found[:10])
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[pytest.TestReport]:
    """Look at what was printed and nobody read."""
    report = yield
    marks = item.config.stash[_MARKS]
    if (
        report.passed
        and item.path.parent.name not in PAGES
        and marks.finds("".join(text for _, text in report.sections))
    ):
        report.outcome, report.longrepr = "failed", "a secret was printed, or logged"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Begin anew with each test."""
    try:
        return (yield)
    finally:
        item.config.stash[_MARKS].clear()


_MARKS = pytest.StashKey[Marks]()
