"""
Checks of a caller's arguments against the table of operations, and their conversion to wire form.

One error names all bad arguments.  Values that the specification leaves open are accepted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from invsvc_async.api.json_values import Problems, is_object, kind_of, to_wire
from invsvc_async.api.operations import Form, Operation, Parameter
from invsvc_async.api.parameters import (
    METADATA,
    Checked,
    is_segment,
    place,
    quoted,
    texts_of,
    wire_name,
)
from invsvc_async.errors import InvalidRequestError
from invsvc_async.models.common import UNSET

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.settings import ParameterNames

_DIGITS = re.compile("-?[0-9]{1,15}")  # a time may be before 1970


def check(
    operation: Operation,
    arguments: Mapping[str, object],
    names: ParameterNames,
    team: str | None = None,
    extra_query: Mapping[str, object] | None = None,
    extra_body: Mapping[str, Wire] | None = None,
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
    checked: Checked = {"path": {}, "query": {}, "body": {}}
    for parameter in operation.parameters:
        value = arguments[parameter.name]
        if value is not UNSET:
            place(parameter, value, checked, names, problems)
    if team is not None:
        check_team(team, problems)
    if operation.shape == "list":
        _check_range(checked["query"], names, problems)
    if extra_query is not None:
        checked["query"].update(
            _extra(operation, "query", extra_query, names, problems)
        )
    if extra_body is not None:
        checked["body"].update(_extra(operation, "body", extra_body, names, problems))
    if operation.needs_field:
        _check_has_field(operation, checked, problems)
    if problems:
        raise InvalidRequestError(problems, operation=operation.name)
    return checked


def _check_has_field(
    operation: Operation,
    checked: Checked,
    problems: Problems,
) -> None:
    if not checked["body"] and not problems:
        fields = ", ".join(
            row.name for row in operation.parameters if row.where == "body"
        )
        problems.append(f"fields: none is given. Pass at least one of {fields}")


def are_parameters(
    query: Mapping[str, str],
    operation: Operation,
    names: ParameterNames,
) -> bool:
    """Return whether *operation* has a parameter for each name in *query*: times and numbers are digits."""
    rows = _rows(operation, "query", names)
    filtered = any(row.form is Form.METADATA for row in operation.parameters)
    for name, value in query.items():
        row = rows.get(name)
        if row is None:
            if not filtered or not name.startswith(METADATA):
                return False
        elif row.form in {Form.INTEGER, Form.TIME} and not _DIGITS.fullmatch(value):
            return False
    return True


def check_team(team: object, problems: Problems) -> None:
    """Check the Connect parameter, which every operation has."""
    if not (isinstance(team, str) and is_segment(team)):
        shown = quoted(team) if isinstance(team, str) else kind_of(team)
        problems.append(f"team: {shown} is not a valid team id")


def _check_range(
    query: Mapping[str, str],
    names: ParameterNames,
    problems: Problems,
) -> None:
    if not problems:
        _check_order(query, names, problems)
    if names.page is None or names.page not in query:
        return
    if not any(name.startswith(METADATA) for name in query):
        problems.append(
            "page: is allowed only with metadata filters. Use `cursor` instead"
        )


def _check_order(
    query: Mapping[str, str],
    names: ParameterNames,
    problems: Problems,
) -> None:
    after = query.get(names.created_after or "")
    before = query.get(names.created_before or "")
    if after is None or before is None:
        return
    if int(after) > int(before):
        problems.append(
            "created_after: is later than created_before, so nothing can match"
        )


def _rows(
    operation: Operation,
    where: str,
    names: ParameterNames,
) -> dict[str | None, Parameter]:
    """Return the parameters of *operation* in its query or body, by their names on the wire."""
    return {
        wire_name(row, names): row for row in operation.parameters if row.where == where
    }


def _extra(
    operation: Operation,
    where: Literal["query", "body"],
    given: Mapping[str, object],
    names: ParameterNames,
    problems: Problems,
) -> Mapping[str, Wire]:
    """Convert members of query or body that are not in the table, to wire form."""
    address = f"extra_{where}"
    own = {name: row.name for name, row in _rows(operation, where, names).items()}
    if where == "query":
        added = texts_of(address, given, problems)
        own["team"] = "team"
    elif not is_object(added := to_wire(given, address, problems)):
        problems.append(f"{address}: is {kind_of(given)}, not an object")
        return {}
    for key in added:
        if key in own:
            problems.append(f"{address}.{key}: use the argument {own[key]}")
    if where == "query":
        return added
    for key in added:
        if key in operation.reserved:
            problems.append(f"{address}.{key}: is set by the service")
    return added
