"""
Checks of a caller's arguments against the table of operations, and their conversion to wire form.

One error names all bad arguments.  Values that the specification leaves open are accepted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from invsvc_async.api.json_values import Problems, is_object, kind_of, to_wire
from invsvc_async.api.operations import Form, Operation, Parameter
from invsvc_async.api.parameters import FORMS, METADATA, is_segment, quoted, texts_of
from invsvc_async.errors import InvalidRequestError
from invsvc_async.models.common import UNSET

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.settings import ParameterNames

__all__ = ["Checked", "are_parameters", "check", "check_team", "wire_name"]

_DIGITS = re.compile("-?[0-9]{1,15}")  # a time may be before 1970


class Checked(Struct):  # made for every call
    """Arguments in wire form: path values not yet quoted, query values as text, the body as JSON."""

    path: dict[str, str]
    query: dict[str, str]
    body: dict[str, Wire]


def check(
    operation: Operation,
    arguments: Mapping[str, object],
    names: ParameterNames,
    team: str | None = None,
    extra_query: Mapping[str, object] | None = None,
    extra_body: Mapping[str, Wire] | None = None,
    *,
    others: Sequence[str] = (),
) -> Checked:
    """
    Check *arguments* and sort them into path, query and body.

    *arguments* has a value for each parameter of the operation, by its Python name; ``UNSET`` is left out.
    *others* are problems already found.

    Raises:
        InvalidRequestError: At least one argument is invalid.  It lists every problem.
    """
    problems: Problems = [*others]
    checked = Checked({}, {}, {})
    for parameter in operation.parameters:
        value = arguments[parameter.name]
        if value is not UNSET:
            _place(parameter, value, checked, names, problems)
    if team is not None:
        check_team(team, problems)
    if operation.shape == "list":
        _check_range(checked, names, problems)
    if extra_query is not None:
        _add_query(operation, extra_query, checked, names, problems)
    if extra_body is not None:
        _add_body(operation, extra_body, checked, problems)
    if operation.needs_field and not (checked.body or problems):
        names_of_body = ", ".join(row.name for row in operation.parameters if row.where == "body")
        problems.append(f"fields: none is given. Pass at least one of {names_of_body}")
    if problems:
        raise InvalidRequestError(problems, operation=operation.name)
    return checked


def wire_name(parameter: Parameter, names: ParameterNames) -> str | None:
    """Return the name of *parameter* on the wire, or ``None`` if its assumed name is switched off."""
    if parameter.assumed is None:
        return parameter.wire
    assumed: str | None = getattr(names, parameter.assumed)
    return assumed


def are_parameters(query: Mapping[str, str], operation: Operation, names: ParameterNames) -> bool:
    """Return whether *operation* has a parameter for each name in *query*: times and numbers are digits."""
    rows = {wire_name(row, names): row for row in operation.parameters if row.where == "query"}
    filtered = any(row.form is Form.METADATA for row in operation.parameters)
    return all(
        rows[name].form not in {Form.INTEGER, Form.TIME} or _DIGITS.fullmatch(value) is not None
        if name in rows
        else filtered and name.startswith(METADATA)
        for name, value in query.items()
    )


def _place(
    parameter: Parameter, value: object, checked: Checked, names: ParameterNames, problems: Problems
) -> None:
    wire = parameter.wire if parameter.assumed is None else wire_name(parameter, names)
    if wire is None:
        off = f"is switched off: ParameterNames.{parameter.assumed} is None"
        problems.append(f"{parameter.name}: {off}")
    elif value is None:
        if not parameter.nullable:
            advice = "" if parameter.required else ". Leave it out instead"
            problems.append(f"{parameter.name}: must not be null{advice}")
        checked.body[wire] = None
    else:
        formed = FORMS[parameter.form](parameter, value, problems)
        if parameter.where == "body":
            checked.body[wire] = formed
        elif parameter.form is Form.METADATA:
            checked.query.update(formed)
        else:
            (checked.path if parameter.where == "path" else checked.query)[wire] = str(formed)


def check_team(team: object, problems: Problems) -> None:
    """Check the Connect parameter, which every operation has."""
    if not (isinstance(team, str) and is_segment(team)):
        shown = quoted(team) if isinstance(team, str) else kind_of(team)
        problems.append(f"team: {shown} is not a valid team id")


def _check_range(checked: Checked, names: ParameterNames, problems: Problems) -> None:
    query = checked.query
    after, before = query.get(names.created_after or ""), query.get(names.created_before or "")
    if after is not None and before is not None and int(after) > int(before) and not problems:
        problems.append("created_after: is later than created_before, so nothing can match")
    paged = names.page is not None and names.page in query
    if paged and not any(name.startswith(METADATA) for name in query):
        problems.append("page: is allowed only with metadata filters. Use `cursor` instead")


def _add_query(
    operation: Operation,
    extra: Mapping[str, object],
    checked: Checked,
    names: ParameterNames,
    problems: Problems,
) -> None:
    texts = texts_of("extra_query", extra, problems)
    own = {wire_name(row, names): row.name for row in operation.parameters if row.where == "query"}
    own["team"] = "team"
    problems.extend(f"extra_query.{key}: use the argument {own[key]}" for key in texts if key in own)
    checked.query.update(texts)


def _add_body(operation: Operation, extra: Mapping[str, Wire], checked: Checked, problems: Problems) -> None:
    body = to_wire(extra, "extra_body", problems)
    if not is_object(body):
        problems.append(f"extra_body: is {kind_of(extra)}, not an object")
        return
    own = {row.wire: row.name for row in operation.parameters if row.where == "body"}
    problems.extend(f"extra_body.{key}: use the argument {own[key]}" for key in body if key in own)
    problems.extend(f"extra_body.{key}: is set by the service" for key in body if key in operation.reserved)
    checked.body.update(body)
