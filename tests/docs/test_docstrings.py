"""Every public name tells what its users must know: what it is for, in which units, what it raises, and where the specification says so."""

from __future__ import annotations

import inspect
import re
from importlib import import_module

import attrs
import pytest

import invsvc_async
from invsvc_async import batch, errors, events, export, models, readers, settings, simulator, testing
from invsvc_async.client import Client
from invsvc_async.operations import BY_NAME, TABLE, Kind
from invsvc_async.resources.base import Resource
from invsvc_async.writes import Write
from tests.docs.pages import ROOT

ROOMS = (invsvc_async, events, models, readers, simulator, testing, batch, export)
TIME = re.compile(
    r"(^|_)(timeout|seconds|poll|deadline|lease|delay|grace|older_than|not_after|pause|latency|hang)($|_)"
)
UNIT = re.compile(r"\b(seconds?|ms|milliseconds|minutes)\b|[ (\d]s\b")
OF_RESOURCES = [row for row in TABLE if not row.name.startswith("client.")]


def public():
    """Give every public name and its thing; of classes of the package, their public methods and properties too."""
    for room in ROOMS:
        for name in room.__all__:
            yield f"{room.__name__}.{name}", getattr(room, name)
    yield from ((f"Client.{name}", method) for name, method in members(Client))
    for resource in resources().values():
        yield f"{resource.__name__}", resource
        yield from ((f"{resource.__name__}.{name}", method) for name, method in members(resource))


def members(cls):
    return [
        (name, each)
        for name, each in vars(cls).items()
        if not name.startswith("_") and (inspect.isfunction(each) or isinstance(each, property))
    ]


def resources():
    return {
        name: next(
            each
            for each in vars(import_module(f"invsvc_async.resources.{name}")).values()
            if inspect.isclass(each) and issubclass(each, Resource) and each is not Resource
        )
        for name in sorted({row.name.partition(".")[0] for row in OF_RESOURCES})
    }


NAMES = [
    (name, thing)
    for name, thing in public()
    if inspect.isclass(thing) or inspect.isroutine(thing) or isinstance(thing, property)
]


@pytest.mark.parametrize("thing", [thing for _, thing in NAMES], ids=[name for name, _ in NAMES])
def test_docstring_of(thing) -> None:
    """It has one, and one that gives the unit of every time that it takes as a number."""
    text = inspect.getdoc(thing)

    assert text
    assert not times_of(thing) or UNIT.search(text), f"{times_of(thing)} without a unit"


def times_of(thing):
    """Give the arguments, or the fields, that are times and do not say their unit in their name."""
    if inspect.isclass(thing) and attrs.has(thing):
        taken = {field.name: field.type for field in attrs.fields(thing)}
    elif isinstance(thing, property) or inspect.isclass(thing):
        return []
    else:
        taken = {name: each.annotation for name, each in inspect.signature(thing).parameters.items()}
    return [
        name
        for name, kind in taken.items()
        if TIME.search(name) and re.search("float|int", str(kind)) and "minutes" not in name
    ]


@pytest.mark.parametrize("row", OF_RESOURCES, ids=lambda row: row.name)
def test_docstring_of_operation(row) -> None:
    """A method of the API tells what it raises and its section; a write, also how a lost answer is settled."""
    resource, _, method = row.name.partition(".")
    text = inspect.getdoc(getattr(resources()[resource], method))

    assert "Raises:" in text
    assert "Spec: " in text
    if row.listed:
        assert row.section in text
    if row.kind is Kind.WRITE:
        assert "when the answer is lost" in " ".join(text.lower().split())
        assert "WriteNotAppliedError" in text
        assert "AmbiguousWriteError" in text


def test_client_says_what_it_raises() -> None:
    """So do the client's own ways to the network."""
    for name in ("request", "write", "download", "settle", "resume", "recover", "from_env"):
        assert "Raises:" in inspect.getdoc(getattr(Client, name)), name
    assert "Raises:" in inspect.getdoc(Write.outcome)
    assert "client.write" in BY_NAME


def test_public_names_are_in_the_reference() -> None:
    """Each has its entry by name; models, readers, errors and settings are taken whole, by their module."""
    pages = "".join(page.read_text() for page in (ROOT / "docs/reference").glob("*.md"))
    rooms = {"errors", "events", "models", "readers", "simulator", "testing", "__version__"}
    whole = {*errors.__dict__, *settings.__all__, "UNSET"}
    missing = [
        f"{room.__name__}.{name}"
        for room in ROOMS
        if room not in {models, readers}
        for name in set(room.__all__) - rooms - whole
        if name not in invsvc_async.__all__ or room is invsvc_async
        if not re.search(rf":: {re.escape(room.__name__)}\.{name}$", pages, re.MULTILINE)
    ]

    assert missing == []
