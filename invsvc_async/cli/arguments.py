"""
Conversion of command-line words to an operation's arguments.

``name=value`` sets an argument, and ``name:=JSON`` sets it to a JSON value.  Other words fill the path
parameters in order.  Values are checked later, by the operation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any

import typer

from invsvc_async.api.event_types import EVENT_TYPES
from invsvc_async.api.operations import (
    BY_NAME,
    Form,
    Operation,
    OperationKind,
    Parameter,
)
from invsvc_async.cli.options import misuse
from invsvc_async.errors import InvalidRequestError, UnreadableResponseError
from invsvc_async.resources.by_name import did_you_mean, names_of

if TYPE_CHECKING:
    from datetime import tzinfo

_WORD = re.compile(
    r"(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)(?P<sign>:?=)(?P<value>.*)", re.DOTALL
)
# arguments outside the table of operations
_FORMS = {"extra_body": Form.OBJECT, "extra_query": Form.OBJECT}


def operation_of(
    name: str,
    kind: OperationKind,
    *,
    many: bool | None = None,
) -> Operation:
    """Return the operation called *name*; a resource name alone selects its ``list``, or else its ``get``."""
    possible = operations_of(kind, many=many)
    usual = f"{name}.list" if many else f"{name}.get"
    found = possible.get(name) or possible.get(usual)
    if found is None:
        wrong = f"{name}: unknown. Use one of {', '.join(possible)}"
        raise InvalidRequestError(wrong, hint=did_you_mean(name, possible))
    return found


def operations_of(
    kind: OperationKind, *, many: bool | None = None
) -> dict[str, Operation]:
    """Return the operations of *kind* by name; *many* selects lists, or reads of one item."""
    found = dict[str, Operation]()
    for row in BY_NAME.values():
        if row.name.startswith("client."):
            continue
        if row.kind is not kind:
            continue
        if many in (None, row.many):
            found[row.name] = row
    return found


# Any: depends on the form
def arguments_of(operation: Operation, words: Sequence[str]) -> dict[str, Any]:
    """Return the arguments that *words* give; each value has the form of its argument."""
    rows = {row.name: row for row in operation.parameters}
    has_metadata = "metadata" in rows
    arguments = dict[str, Any]()
    given = set[str]()
    for name, sign, text in _split_words(operation, words):
        whole = name
        if has_metadata and name.startswith("metadata."):
            whole = "metadata"
        if name in arguments or not given.isdisjoint({name, whole}):
            raise InvalidRequestError(
                f"{name}: is given twice", operation=operation.name
            )
        given.add(name)
        if sign == "":
            arguments[name] = text
        elif sign != "=":
            arguments[name] = _json(name, text)
        elif whole != name:
            arguments.setdefault(whole, {})[name.removeprefix("metadata.")] = text
        else:
            arguments[name] = _checked_value(operation, rows.get(name), name, text)
    return arguments


def _checked_value(
    operation: Operation,
    row: Parameter | None,
    name: str,
    text: str,
) -> Any:
    form = row.form if row else _FORMS.get(name, Form.TEXT)
    value = _value(name, text, form)
    _check_choice(operation, row, value)
    return value


def _split_words(
    operation: Operation, words: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    """
    Yield name, sign and text of each word.

    A word without a sign is the next argument of the path; its sign is empty.

    Raises:
        InvalidRequestError: The path has no more arguments.
    """
    path_names = [row.name for row in operation.parameters if row.where == "path"]
    for word in words:
        match = _WORD.fullmatch(word)
        if match is not None:
            name, sign, text = match.groups()
            yield name, sign, text
        elif path_names:
            yield path_names.pop(0), "", word
        else:
            raise InvalidRequestError(
                f"{word!r}: unexpected. Write name=value", operation=operation.name
            )


def _check_choice(
    operation: Operation,
    row: Parameter | None,
    value: object,
) -> None:
    """Suggest the choice that was probably meant; the operation itself checks the value."""
    if row is None or not row.choices:
        return
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, str):
            continue
        if each in row.choices:
            continue
        suggestion = did_you_mean(each, row.choices)
        if suggestion:
            is_event = row.form is Form.EVENTS
            known = "an event type" if is_event else f"one of {', '.join(row.choices)}"
            wrong = f"{row.name}: {each!r} is not {known}"
            raise InvalidRequestError(wrong, operation=operation.name, hint=suggestion)


def completion(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return the completion of one of *names*, for a shell."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def complete_operation(
    kind: OperationKind, *, many: bool | None = None
) -> Callable[[str], list[str]]:
    """Return the completion of an operation's name, for a shell."""
    return completion(operations_of(kind, many=many))


complete_event: Callable[[str], list[str]] = completion(EVENT_TYPES)


def complete_argument(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of an argument, and its value if the specification lists the possible ones."""
    from invsvc_async.client import Client
    from invsvc_async.transport.credentials import ApiKey

    what = str(ctx.params.get("what") or "")
    words: Sequence[str] = ctx.params.get("words") or ()
    found = _first_called(what)
    if found is None:
        return []
    names = names_of(Client("http://127.0.0.1:1/v2", ApiKey("never-sent")), found.name)
    name, sign, value = incomplete.partition("=")
    if sign:
        return [f"{name}={each}" for each in _complete_value(found, name, value)]
    # bash makes three words of NAME=VALUE, and two of NAME= without a value.
    if len(words) > 1 and words[-1] == "=":
        return _complete_value(found, words[-2], incomplete)
    if words and not incomplete and words[-1] in names:
        return _complete_value(found, words[-1], "")
    given = {word.partition("=")[0].removesuffix(":") for word in words}
    return _beginning_with(name, [each for each in names if each not in given], "=")


def _first_called(what: str) -> Operation | None:
    """Return the operation called *what*, or the first operation of the resource *what*."""
    for name, row in BY_NAME.items():
        if f"{name}.".startswith(f"{what}."):
            return row
    return None


def _beginning_with(
    text: str,
    names: Iterable[str],
    end: str = "",
) -> list[str]:
    return [f"{name}{end}" for name in names if name.startswith(text)]


def _complete_value(
    operation: Operation,
    name: str,
    value: str,
) -> list[str]:
    """Complete the last item of *value*, a list with commas, by the choices of the argument *name*."""
    before, comma, last = value.rpartition(",")
    choices = _choices_of(operation, name)
    return [f"{before}{comma}{each}" for each in _beginning_with(last, choices)]


def _choices_of(operation: Operation, name: str) -> Iterable[str]:
    """Return the choices of the argument *name*; none if the operation has no such argument."""
    for row in operation.parameters:
        if row.name == name:
            return row.choices
    return ()


def _value(name: str, text: str, form: Form) -> Any:
    # A tag has no row, and may be a text of the user's.
    if name == "tag" and text in ("true", "false"):
        form = Form.FLAG
    match form:
        case (
            Form.INTEGER
            | Form.NUMBER
            | Form.FLAG
            | Form.OBJECT
            | Form.GRAPH
            | Form.MEMBERS
            | Form.METADATA
        ):
            return _json(name, text, form)
        case Form.EVENTS if text.lstrip().startswith("["):
            return _json(name, text, form)
        case Form.EVENTS:
            return [each.strip() for each in text.split(",")]
        case Form.TIME:
            return time_of(name, text)
        case _:
            return text


def _json(name: str, text: str, what: str = "JSON value") -> Any:
    from invsvc_async.codec import envelope

    try:
        return envelope.loads(text.encode())
    except UnreadableResponseError:
        raise InvalidRequestError(f"{name}: {text!r} is not a valid {what}") from None


def moment_of(
    name: str,
    text: str | None,
    zone: tzinfo | None = None,
) -> int | None:
    """
    Return the moment that *text* gives, in epoch ms; ``None`` if there is none. *name* is for the error.

    A date is its midnight, in *zone* or else in UTC. A time has an offset, unless there is a *zone*.
    """
    if text is None:
        return None
    found = time_of(name, text)
    if isinstance(found, int):
        return found
    if not isinstance(found, datetime):
        found = datetime.combine(found, time.min, zone or UTC)
    if found.tzinfo is None:
        if zone is None:
            raise misuse(f"{text!r} has no offset from UTC. Add one: {text}Z", name)
        found = found.replace(tzinfo=zone)
    return round(found.timestamp() * 1000)


def time_of(name: str, text: str) -> int | date | datetime:
    """Return the time that *text* gives: an ISO 8601 one, or epoch ms; *name* is for the error."""
    if text.isdecimal() and len(text) != len("20260501"):  # which is a date
        return int(text)
    try:
        if len(text) <= len("2026-05-01"):
            return date.fromisoformat(text)
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequestError(
            f"{name}: {text!r} is not an ISO 8601 date or time, nor epoch ms"
        ) from None
