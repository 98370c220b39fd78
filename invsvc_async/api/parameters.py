"""
Conversion of single arguments to wire form, with one function for each form of parameter (``FORMS``).

Each function takes the row, the caller's value and the list of problems so far.  Filters by metadata, which
become more than one parameter of the query, have none.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Mapping, Set as AbstractSet
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, TypeAlias, cast
from urllib.parse import unquote, urlsplit

from invsvc_async.api import json_values
from invsvc_async.api.json_values import Given, Problems, is_list, kind_of, to_wire
from invsvc_async.api.operations import Form, Parameter
from invsvc_async.codec.exact_json import EPOCH
from invsvc_async.errors import FieldError
from invsvc_async.models.common import Model

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.settings import ParameterNames


# Arguments in wire form, by where they go: path values not yet quoted, query values as text, the body JSON.
Checked: TypeAlias = "dict[str, dict[str, Wire]]"

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_QUOTED = re.compile(r"/(?!/)[A-Za-z0-9_.~/%:@!$&'()*+,;=-]+")
METADATA = "metadata."  # the prefix of metadata filters on the wire

# On 3.11, access through the class takes as long as a call.
_METADATA = Form.METADATA
_MILLISECOND = timedelta(milliseconds=1)
_LONGEST = 1024  # characters of an id
_SEGMENT = rf"(?!\.\.?\Z)[^/\x00-\x1f\x7f-\x9f\ud800-\udfff]{{1,{_LONGEST}}}"


def quoted(text: str) -> str:
    """Quote *text* for a message: printable, and truncated if it is long."""
    if len(text) > 60:
        text = f"{text[:57]}..."
    return ascii(text)


def _id(
    parameter: Parameter,
    value: Given,
    problems: Problems,
) -> str:
    if isinstance(value, str) and _matcher(parameter.pattern)(value) is not None:
        return str(value)  # it may be of a subclass
    if isinstance(value, Model) and type(value).__name__ == parameter.bearer:
        try:
            value = getattr(value, "id")  # noqa: B009 - according to the row, this model has one
        except FieldError as error:
            problems.append(
                f"{parameter.name}: the {parameter.bearer}'s id cannot be read ({error.why})"
            )
            return ""
        return _id(parameter, value, problems)
    if not isinstance(value, str):
        if parameter.bearer is None:
            wanted = "an id"
        else:
            wanted = f"a {parameter.bearer} or its id"
        problems.append(f"{parameter.name}: is {kind_of(value)}, not {wanted}")
    elif parameter.pattern is None or re.fullmatch(parameter.pattern, value):
        wanted = f"1 to {_LONGEST} characters without slashes and control characters"
        problems.append(
            f"{parameter.name}: {quoted(value)} is not a valid id ({wanted})"
        )
    else:
        problems.append(
            f"{parameter.name}: {quoted(value)} does not match ^{parameter.pattern}$"
        )
    return ""


@cache
def _matcher(pattern: str | None) -> Callable[[str], re.Match[str] | None]:
    """Return what matches an id: a segment that has the *pattern*."""
    if not pattern:
        return re.compile(_SEGMENT).fullmatch
    return re.compile(f"(?={_SEGMENT}\\Z)(?:{pattern})").fullmatch


def is_segment(text: str) -> bool:
    """Return whether *text* can be one segment of a path."""
    return _matcher(None)(text) is not None


def is_below_base(path: str) -> bool:
    """Return whether *path*, quoted and with a slash before it, stays below the base URL."""
    if _QUOTED.fullmatch(path) is None:
        return False
    whole = unquote(path.removeprefix("/"))
    if CONTROL.search(whole) is not None:
        return False
    if "\\" in whole or "//" in whole:
        return False
    return {".", ".."}.isdisjoint(whole.split("/"))


def _text(
    parameter: Parameter,
    value: Given,
    problems: Problems,
) -> str:
    if not isinstance(value, str):
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if is_whole and parameter.form is Form.FOLIO:
            return str(to_wire(value, parameter.name, problems))
        problems.append(f"{parameter.name}: is {kind_of(value)}, not text")
        return ""
    text = json_values.text(value, parameter.name, problems)
    _check_text(parameter, text, problems)
    return text


def _check_text(
    parameter: Parameter,
    text: str,
    problems: Problems,
) -> None:
    # an empty filter has no effect
    least = 1 if parameter.where == "query" else 0
    if parameter.minimum:
        least = parameter.minimum
    if parameter.choices and text not in parameter.choices:
        problems.append(
            f"{parameter.name}: {quoted(text)} is not one of {', '.join(parameter.choices)}"
        )
    elif len(text) < least:
        problems.append(f"{parameter.name}: must not be empty")
    elif parameter.maximum is not None and len(text) > parameter.maximum:
        problems.append(
            f"{parameter.name}: has {len(text)} characters; the maximum is {parameter.maximum}"
        )


def _integer(
    parameter: Parameter,
    value: Given,
    problems: Problems,
) -> int:
    low = parameter.minimum
    high = parameter.maximum
    if isinstance(value, bool) or not isinstance(value, int):
        problems.append(f"{parameter.name}: is {kind_of(value)}, not a whole number")
    elif not _is_between(value, low, high):
        bounds = f"from {low} to {high}" if high is not None else f"{low} or more"
        problems.append(f"{parameter.name}: is {value}, not {bounds}")
    else:
        return int(value)
    return 0


def _is_between(
    value: int,
    low: int | None,
    high: int | None,
) -> bool:
    if low is not None and value < low:
        return False
    return high is None or value <= high


def _flag(
    parameter: Parameter,
    value: Given,
    problems: Problems,
) -> Wire:
    if not isinstance(value, bool):
        problems.append(f"{parameter.name}: is {kind_of(value)}, not true or false")
    return value


def _time(
    parameter: Parameter,
    value: Given,
    problems: Problems,
) -> int:
    return epoch_ms(parameter.name, value, problems)


def epoch_ms(name: str, value: Given, problems: Problems) -> int:
    """Return the time *value* of the argument *name* as epoch ms; what is wrong with it is a problem."""
    match value:
        case datetime() if value.utcoffset() is None:
            problems.append(f"{name}: has no time zone. Pass an aware datetime")
        case datetime():
            return (value - EPOCH) // _MILLISECOND
        case date():
            return (
                datetime(value.year, value.month, value.day, tzinfo=UTC) - EPOCH
            ) // _MILLISECOND
        case int() if not isinstance(value, bool):
            if value < 0:
                problems.append(f"{name}: is {value}, before 1970")
            return int(value)
        case _:
            problems.append(
                f"{name}: is {kind_of(value)}, not an aware datetime, a date or epoch ms"
            )
    return 0


def _formed(form: json_values.Form) -> Callable[[Parameter, Given, Problems], Wire]:
    def convert(
        parameter: Parameter,
        value: Given,
        problems: Problems,
    ) -> Wire:
        wire = to_wire(value, parameter.name, problems)
        json_values.check_form(form, wire, parameter.name, problems)
        return wire

    return convert


def _events(
    parameter: Parameter,
    value: Given,
    problems: Problems,
) -> list[str]:
    if isinstance(value, AbstractSet):
        value = sorted(map(str, cast("AbstractSet[object]", value)))
    if not is_list(value):
        problems.append(
            f"{parameter.name}: is {kind_of(value)}, not a list of event types"
        )
        return []
    if not value:
        _warn(
            f"{parameter.name}: is empty, so nothing is delivered to the webhook. Name the events."
        )
    events = [str(event) for event in value]
    unknown = [event for event in events if event not in parameter.choices]
    if unknown:
        hint = _similar(unknown, parameter.choices)
        problems.append(
            f"{parameter.name}: {', '.join(map(quoted, unknown))} is not an event type{hint}"
        )
    return events


def _similar(unknown: list[str], choices: Collection[str]) -> str:
    """Return the question whether the most similar *choices* were meant, or an empty text."""
    from difflib import get_close_matches

    close: list[str] = []
    for event in unknown:
        close += get_close_matches(event, choices, 1)
    if close:
        return f". Did you mean {', '.join(close)}?"
    return ""


def _url(
    parameter: Parameter,
    value: Given,
    problems: Problems,
) -> str:
    if not isinstance(value, str) or not _is_url(value):
        shown = quoted(value) if isinstance(value, str) else kind_of(value)
        problems.append(f"{parameter.name}: {shown} is not an absolute URL with a host")
    elif urlsplit(value).scheme not in {"http", "https"}:
        _warn(
            f"{parameter.name}: is neither http nor https, so nothing may be delivered. Check the URL."
        )
    if isinstance(value, str):
        return str(value)
    return ""


def _warn(words: str) -> None:
    """Warn of what the specification allows, but is surely a mistake."""
    # the caller of the resource's method
    warnings.warn(words, UserWarning, stacklevel=8)


def _is_url(text: str) -> bool:
    if CONTROL.search(text) or " " in text:
        return False
    try:
        parts = urlsplit(text)
        return bool(parts.scheme) and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def texts_of(
    name: str,
    values: object,
    problems: Problems,
) -> dict[str, str]:
    """Convert the values of a query to text, by name."""
    texts: dict[str, str] = {}
    if not isinstance(values, Mapping):
        problems.append(f"{name}: is {kind_of(values)}, not an object")
        return texts
    for key, value in values.items():
        if not isinstance(key, str) or not key or CONTROL.search(key):
            problems.append(f"{name}: has a key that is not a valid parameter name")
            continue
        text = _query_text(value, f"{name}.{key}", problems)
        if text is not None:
            texts[key] = text
    return texts


def _query_text(
    value: object,
    address: str,
    problems: Problems,
) -> str | None:
    """Return *value* as text, or ``None`` if it has no exact form there, which is a problem."""
    match value:
        case bool():
            if value:
                return "true"
            return "false"
        case Decimal() if not isfinite(value):
            pass
        case str() | int() | Decimal():
            return str(to_wire(value, address, problems))
        case _:
            pass
    problems.append(
        f"{address}: is {kind_of(value)}, not text, a whole number, a Decimal or a boolean"
    )
    return None


FORMS: dict[Form, Callable[[Parameter, Given, Problems], Wire]] = {
    Form.ID: _id,
    Form.TEXT: _text,
    Form.FOLIO: _text,
    Form.INTEGER: _integer,
    Form.NUMBER: _formed("a number"),
    Form.FLAG: _flag,
    Form.TIME: _time,
    Form.OBJECT: _formed("an object"),
    Form.GRAPH: _formed(json_values.GRAPH),
    Form.MEMBERS: _formed(json_values.MEMBERS),
    Form.EVENTS: _events,
    Form.URL: _url,
}


def wire_name(parameter: Parameter, names: ParameterNames) -> str | None:
    """Return the name of *parameter* on the wire, or ``None`` if its assumed name is switched off."""
    if parameter.assumed is None:
        return parameter.wire
    assumed: str | None = getattr(names, parameter.assumed)
    return assumed


def place(
    parameter: Parameter,
    value: Given,
    checked: Checked,
    names: ParameterNames,
    problems: Problems,
) -> None:
    """Convert *value* to wire form, and put it into the path, query or body."""
    wire = parameter.wire if parameter.assumed is None else wire_name(parameter, names)
    if wire is None:
        off = f"is switched off: ParameterNames.{parameter.assumed} is None"
        problems.append(f"{parameter.name}: {off}")
    elif value is None:
        if not parameter.nullable:
            advice = "" if parameter.required else ". Leave it out instead"
            problems.append(f"{parameter.name}: must not be null{advice}")
        checked["body"][wire] = None
    elif parameter.form is _METADATA:
        texts = texts_of(parameter.name, value, problems)
        checked["query"].update(
            {f"{METADATA}{key}": text for key, text in texts.items()}
        )
    else:
        formed = FORMS[parameter.form](parameter, value, problems)
        checked[parameter.where][wire] = (
            formed if parameter.where == "body" else str(formed)
        )
