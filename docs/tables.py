"""Tables of the operations, made from the rows that the code uses."""

from __future__ import annotations

from inspect import Parameter as Argument, signature

from invsvc_async import Client
from invsvc_async.api.operations import TABLE, Operation, OperationKind, Parameter
from invsvc_async.settings import ParameterNames

ASSUMED = ParameterNames()


def _shown(row: Operation) -> bool:
    return row.listed or row.name == "journeys.get"


def section_of(row: Operation) -> str:
    """Return the section of the specification."""
    if not row.listed:
        return "not in the list of operations"
    resource = row.name.partition(".")[0]
    return f"Endpoints, {'Spreadsheet import' if resource == 'sheets' else resource.capitalize()}"


def operations() -> list[tuple[str, ...]]:
    """Return a row for each operation."""
    rows: list[tuple[str, ...]] = [("Operation", "Request", "Answer", "Needs", "Spec")]
    for row in filter(_shown, TABLE):
        result = f"list of `{row.result}`" if row.many else f"`{row.result}`"
        rows.append(
            (
                f"`{row.name}`",
                f"`{row.method} {row.path}`",
                result,
                row.authority or "-",
                section_of(row),
            )
        )
    return rows


def settling() -> list[tuple[str, ...]]:
    """Return a row for each write: how a lost answer is settled."""
    writes = (row for row in TABLE if row.kind is OperationKind.WRITE)
    readers = (
        (row, f"`{row.reader}`" if row.reader else "a custom `reader=`")
        for row in writes
    )
    rows = [(f"`{row.name}`", reader, row.settled) for row, reader in readers]
    return [("Write", "Read that settles it", "How a lost answer is settled"), *rows]


def parameters() -> list[tuple[str, ...]]:
    """Return a row for each parameter: where it goes, its name, and its limits."""
    rows: list[tuple[str, ...]] = [
        ("Operation", "Argument", "Goes in", "Name on the wire", "Takes")
    ]
    for row in filter(_shown, TABLE):
        for number, each in enumerate(row.parameters):
            name = f"`{row.name}`" if number == 0 else ""
            rows.append((name, f"`{each.name}`", each.where, _wire(each), _takes(each)))
        open_ = "what the specification leaves open"
        rows += [("", f"`extra_{place}`", place, "-", open_) for place in row.extra]
    return rows


def assumed() -> list[tuple[str, ...]]:
    """Return a row for each assumed name."""
    rows: list[tuple[str, ...]] = [("Argument", "Assumed name", "Setting")]
    seen = {
        each.assumed: each for row in TABLE for each in row.parameters if each.assumed
    }
    for setting, each in seen.items():
        rows.append(
            (
                f"`{each.name}`",
                f"`{getattr(ASSUMED, setting)}`",
                f"`ParameterNames.{setting}`",
            )
        )
    return rows


def client_settings() -> list[tuple[str, ...]]:
    """Return a row for each argument of ``Client``."""
    rows: list[tuple[str, ...]] = [("Argument", "Type", "Default")]
    for name, each in signature(Client).parameters.items():
        default = (
            "required" if each.default is Argument.empty else f"`{each.default!r}`"
        )
        plain = default.partition("(")[0]
        rows.append(
            (
                f"`{name}`",
                f"`{each.annotation}`",
                default if len(default) < 40 else f"{plain}()`",
            )
        )
    return rows


def _wire(each: Parameter) -> str:
    return (
        f"`{getattr(ASSUMED, each.assumed)}`, assumed"
        if each.assumed
        else f"`{each.wire}`"
    )


def _takes(each: Parameter) -> str:
    facts = [
        str(each.form)
        if each.form.name != "ID"
        else f"id{f' or `{each.bearer}`' if each.bearer else ''}"
    ]
    if each.choices:
        few = len(each.choices) <= 6
        facts.append(
            " or ".join(f"`{choice}`" for choice in each.choices)
            if few
            else f"one of {len(each.choices)}"
        )
    if each.minimum is not None or each.maximum is not None:
        facts.append(
            f"{each.minimum or 0} to {'…' if each.maximum is None else each.maximum}"
        )
    if each.pattern:
        facts.append(f"`{each.pattern}`")
    facts += [
        words
        for found, words in ((each.required, "required"), (each.nullable, "or null"))
        if found
    ]
    return "; ".join([*facts, each.constraint] if each.constraint else facts)
