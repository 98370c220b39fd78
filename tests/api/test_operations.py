"""The table of operations is complete and consistent."""

from __future__ import annotations

import re

import attrs
import pytest

from invsvc_async import models
from invsvc_async.api.operations import BY_NAME, TABLE, Form, Operation, OperationKind
from invsvc_async.codec.envelope import Shape
from invsvc_async.reconcile.kinds import kind_of_write
from invsvc_async.settings import ParameterNames

rows = pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
# writes to one thing, which a read settles
OF_ONE_THING = [row for row in TABLE if row.reader is not None and "{" in row.path]


def test_table_holds_the_specification() -> None:
    """It has the specification's 19 operations, the read of journeys, and three for other requests."""
    unlisted = {row.name for row in TABLE if not row.listed}

    assert len(TABLE) - len(unlisted) == 19
    assert unlisted == {
        "journeys.get",
        "client.request",
        "client.download",
        "client.write",
    }
    assert len(BY_NAME) == len(TABLE)


@rows
def test_row_names_a_model_that_exists(row: Operation) -> None:
    """A result is a class of the models, except for those without one."""
    if row.name.startswith("client."):
        assert row.result in {"Envelope", "bytes", "object"}
    else:
        assert isinstance(getattr(models, row.result), type)


@rows
def test_row_fills_its_path(row: Operation) -> None:
    """The path parameters are those in the path's braces, in the same order."""
    wires = [each.wire for each in row.parameters if each.where == "path"]

    assert wires == re.findall(r"{(\w+)}", row.path)


@rows
def test_row_settles_by_a_read_of_the_table(row: Operation) -> None:
    """A write that a read shows names an existing read; every write has a kind and a text on how it is settled."""
    assert (row.kind is OperationKind.WRITE) == (row.write_kind is not None)
    assert (row.reader is None) == (
        row.write_kind is None or kind_of_write(row).shown_by is None
    )
    assert row.reader is None or BY_NAME[row.reader].kind is OperationKind.READ
    assert (row.kind is OperationKind.WRITE) == bool(row.settled)
    assert (row.method == "GET") == (row.kind is OperationKind.READ)


@pytest.mark.parametrize("row", OF_ONE_THING, ids=lambda row: row.name)
def test_row_names_its_thing_as_id(row: Operation) -> None:
    """The thing that a read shows is `id` in the path: by that, an answer about another thing is recognised."""
    wires = [each.wire for each in row.parameters if each.where == "path"]

    assert wires == ["id"], (
        "reconcile.compare.names_another, writes.values and durable.resolve read path['id']: "
        "otherwise an answer about another thing counts as this one's"
    )


@rows
def test_row_with_an_assumed_name_can_find_it(row: Operation) -> None:
    """A parameter has a name on the wire, or a setting with an assumed one."""
    settings = attrs.fields_dict(ParameterNames)

    for parameter in row.parameters:
        assert (parameter.wire is None) == (parameter.assumed is not None)
        assert parameter.assumed is None or parameter.assumed in settings
        assert parameter.pattern is None or re.compile(parameter.pattern)


def test_lists_alone_have_the_list_envelope() -> None:
    """Only the two invoice lists have a cursor."""
    listed = [row.name for row in TABLE if row.shape is Shape.LIST]

    assert listed == ["invoices.egress", "invoices.payment_complements"]


def test_health_takes_neither_credential_nor_team() -> None:
    """The probe needs no credential, and is the only one without the Connect parameter."""
    assert [row.name for row in TABLE if not row.connect] == ["webhooks.health"]
    assert BY_NAME["webhooks.health"].credentials == ()


def test_forms_are_all_in_use() -> None:
    """Every form is used by a parameter."""
    used = {parameter.form for row in TABLE for parameter in row.parameters}

    assert used == set(Form)
