"""Every public name tells what its users must know: what it is for, in which units, what it raises, and where the specification says so."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from functools import cached_property
from importlib import import_module

import attrs
import pytest

import invsvc_async
from docs.tables import section_of
from invsvc_async import (
    audit,
    batch,
    drift,
    errors,
    events,
    export,
    models,
    readers,
    settings,
    simulator,
    testing,
)
from invsvc_async.api.operations import TABLE, OperationKind
from invsvc_async.engines import rows
from invsvc_async.resources.base import Resource
from tests.docs.pages import ROOT

pytestmark = pytest.mark.untraced

MODULES = (
    invsvc_async,
    events,
    models,
    readers,
    simulator,
    testing,
    batch,
    export,
    drift,
    audit,
    rows,
)
UNIT = re.compile(r"\b(seconds?|ms|milliseconds|minutes)\b|[ (\d]s\b")
NO_TIMES = {"chance", "rate", "reads", "x", "y", "zoom"}
OF_RESOURCES = [row for row in TABLE if not row.name.startswith("client.")]
OURS = re.compile(
    r"(unstructure|enc_hook|CallOptions|Model|Unset|Batch|Outbox|Portal|Intent|Outcome|ReadRetries|ReconcilePolicy|Timeouts|Verdict|Write|batch\.\w+|audit\.\w+|drift\.\w+|engines\.\w+\.\w+|export\.\w+|testing\.\w+"
    r"|Absent|Applied|CannotTell|Holds|Superseded|ApiKey|OAuthToken|PersonToken|TokenProvider|simulator\.\w+"
    r"|events\.(CatchUpSummary|Delivery|Entry|InboxPolicy|\w*Store|Standing|StateStats|StoredEvent|CredentialStats|ReceiverStats|Backlog|Health|SyncReceiver|Handling|Receiver\.(middleware|stats|observe|health))|models\.(Model|Unset))(\..*)?$"
)  # what the package has of its own: no section of the specification is about it
SETS = (models.DbtableScope, models.InvoiceStatus, models.JourneyOrigin, models.JourneyStatus,
        models.PausedReason, models.WebhookStatus, events.BatchResult)  # fmt: skip # told by the field that takes them
LOCAL = {
    "of",
    "from_env",
    "with_options",
    "write_from",
    "outcome_of",
    "resolve",
    "forget",
    "prune",
    "settle",
    "resume",
    "recover",
    "recovering",
    "aclose",
    "on",
    "on_test",
    "receive_until",
    "doubts",
    "refusal",
    "counted",
    "matches",
    "to_dict",
    "to_json",
    "from_dict",
    "from_json",
}
QUIET = re.compile(
    r"(simulator\.\w+|testing\.VirtualClock|events\.\w*Store|ApiKey|OAuthToken|PersonToken|TokenProvider)\."
    r"|Batch\.(stop|summary|warn_once)$|batch\.Result\.of$|Client\.(of|for_team|aclose)$"
    r"|Intent\.to_json$|Outcome\.(explain|to_json)$|Pages\.token_after$|Write\.(with_policy|tagged|send|throw|close)$"
    r"|events\.(CatchUpSummary\.explain|InboxPolicy\.delay|Receiver\.(receive|receive_until|doubts|refusal|counted|answer|aiohttp_handler|stats|health|observe)|SyncReceiver\.(stop|receive|answer|wsgi_app|django_view)|SharedHeader\.matches)$"
    r"|audit\.(Audit\.close|Duplicate\.to_dict)$"
    r"|engines\.rows\.(partition_key$|RowResult\.)"
    r"|readers\.(get|reminder_operation)$|simulator\.routes$"
)  # what gives no error of its own to look after


def public():
    """
    Yield every public name and its object; of classes, also what they and their bases in the package offer.
    """
    for module in MODULES:
        of = (
            ""
            if module is invsvc_async
            else f"{module.__name__.removeprefix('invsvc_async.')}."
        )
        for name in module.__all__:
            if inspect.isclass(thing := getattr(module, name)) or inspect.isroutine(
                thing
            ):
                yield f"{of}{name}", thing
    yield from ((resource.__name__, resource) for resource in resources().values())


def members(cls):
    for base in cls.__mro__:
        for name, each in (
            vars(base).items() if base.__module__.startswith("invsvc_async") else ()
        ):
            method = getattr(each, "__func__", each)  # of a class method
            if not name.startswith("_") and (
                inspect.isfunction(method)
                or isinstance(each, (property, cached_property))
            ):
                yield name, method


def resources():
    return {
        name: next(
            each
            for each in vars(import_module(f"invsvc_async.resources.{name}")).values()
            if inspect.isclass(each)
            and issubclass(each, Resource)
            and each is not Resource
        )
        for name in sorted({row.name.partition(".")[0] for row in OF_RESOURCES})
    }


def named():
    """Yield each object once, with its best-known name and the class that it is a member of."""
    found = {}
    for name, thing in public():
        found.setdefault(thing, (name, None))
    for thing, (name, _) in list(found.items()):
        if inspect.isclass(thing) and not issubclass(thing, Exception):
            for method, each in members(thing):
                found.setdefault(each, (f"{name}.{method}", thing))
    return [(name, thing, owner) for thing, (name, owner) in found.items()]


NAMED = named()
EACH = pytest.mark.parametrize(
    ("name", "thing", "owner"), NAMED, ids=[name for name, *_ in NAMED]
)
FUNCTIONS = [each for each in NAMED if inspect.isfunction(each[1])]
OF_THE_SPECIFICATION = [
    (name, thing)
    for name, thing, _ in NAMED
    if not OURS.match(name)
    and thing not in SETS
    and name.rpartition(".")[2] not in LOCAL
    if inspect.isfunction(thing)
    or (inspect.isclass(thing) and not issubclass(thing, Exception))
]


@EACH
def test_docstring_of(name, thing, owner) -> None:
    """It has one of its own, and one that gives the unit of every time that it takes or holds as a number."""
    # that of the class which a store inherits from
    assert thing.__doc__ or inspect.getdoc(thing)
    if inspect.isclass(thing):
        assert not any(thing.__doc__ == base.__doc__ for base in thing.__mro__[1:])
    told = [
        thing.__doc__,
        owner and owner.__doc__,
        name.startswith("events.") and events.Store.__doc__,
    ]
    times = times_of(thing)
    assert not times or any(UNIT.search(text or "") for text in told), (
        f"{times} without a unit"
    )


def times_of(thing):
    """Return the arguments, or the fields, that are times in seconds."""
    if inspect.isclass(thing) and attrs.has(thing):
        taken = {field.name: field.type for field in attrs.fields(thing)}
    elif inspect.isfunction(thing):
        taken = {
            name: each.annotation
            for name, each in inspect.signature(thing).parameters.items()
        }
    else:
        return []
    return [
        name
        for name, kind in taken.items()
        if re.search(r"\bfloat\b", str(kind)) and name not in NO_TIMES
    ]


@pytest.mark.parametrize(
    ("name", "thing"),
    OF_THE_SPECIFICATION,
    ids=[name for name, _ in OF_THE_SPECIFICATION],
)
def test_section_of(name, thing) -> None:
    """What the specification tells of has its section."""
    assert "Spec: " in thing.__doc__


@pytest.mark.parametrize(
    ("name", "thing", "_"), FUNCTIONS, ids=[name for name, *_ in FUNCTIONS]
)
def test_errors_of(name, thing, _) -> None:
    """A function tells what it raises, unless it stands among those that raise nothing; no ``raise`` is left untold."""
    raised = raised_by(thing)

    if raised or not QUIET.match(name):
        assert "Raises:" in thing.__doc__
    assert not [error for error in raised if error not in thing.__doc__]


def raised_by(function):
    """Return the names of the errors that the function's own lines raise."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    calls = [
        ast.unparse(each.exc).partition("(")[0]
        for each in ast.walk(tree)
        if isinstance(each, ast.Raise) and each.exc
    ]
    return {call for call in calls if call.endswith("Error")}


@pytest.mark.parametrize("row", OF_RESOURCES, ids=lambda row: row.name)
def test_docstring_of_operation(row) -> None:
    """A method of the API tells what it raises and its section; a write, also how a lost answer is settled."""
    resource, _, method = row.name.partition(".")
    text = inspect.getdoc(getattr(resources()[resource], method))

    assert "Raises:" in text
    assert "Spec: " in text
    if row.listed:
        assert section_of(row) in text
    if row.kind is OperationKind.WRITE:
        assert "answer is lost" in " ".join(text.lower().split())
        assert "WriteNotAppliedError" in text
        assert "AmbiguousWriteError" in text


def test_public_names_are_in_the_reference() -> None:
    """Each has its entry by name; models, readers, errors and settings are taken whole, by their module."""
    pages = "".join(page.read_text() for page in (ROOT / "docs/reference").glob("*.md"))
    modules = {
        "errors",
        "events",
        "models",
        "readers",
        "simulator",
        "testing",
        "__version__",
    }
    whole = {
        *errors.__all__,
        "service_error_class",
        *settings.__all__,
        *models.__all__,
        "UNSET",
    } - {"EventType"}
    missing = [
        f"{module.__name__}.{name}"
        for module in MODULES
        if module not in {models, readers}
        for name in set(module.__all__) - modules - whole
        if name not in invsvc_async.__all__ or module is invsvc_async
        if not re.search(
            rf":: {re.escape(module.__name__)}\.{name}$", pages, re.MULTILINE
        )
    ]

    assert missing == []
