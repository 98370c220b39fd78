"""
Kinds of writes that are added as CONTRIBUTING says, put through what the writes of the service are put through.

The tests add labels, which have a name and a colour: their rows in the table of operations, their kinds, and
their routes in the embedded service. Nothing else of the package knows them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import attrs
import pytest

from invsvc_async import UNSET, Verdict, models
from invsvc_async.api import operations
from invsvc_async.api.operations import (
    Form,
    Operation,
    OperationKind as Effect,
    Parameter,
)
from invsvc_async.client import options_of
from invsvc_async.models.common import ABSENT, Model
from invsvc_async.reconcile import kinds
from invsvc_async.reconcile.intent import Intent
from invsvc_async.reconcile.kinds import KINDS, ThingKind, WriteKind, kind_of_write
from invsvc_async.resources.base import Resource
from invsvc_async.simulator.calls import Answer
from invsvc_async.simulator.json_records import Record
from invsvc_async.simulator.operations import BY_OPERATION, Route
from tests.faults.conftest import client_of, new_service
from tests.faults.test_write_matrix import FAULTS, PHASES, wrong_about

pytestmark = pytest.mark.every_python

# --- Step 1 of the recipe: the rows

_ID = Parameter(
    name="label", where="path", form=Form.ID, wire="id", bearer="Label", required=True
)
_NAME = Parameter(name="name", where="body", wire="name", required=True)
_COLOUR = Parameter(name="colour", where="body", wire="colour", nullable=True)


def _row(name, method, path, **fields):
    return Operation(
        name=f"labels.{name}",
        method=method,
        path=path,
        result=fields.pop("result", "Label"),
        **fields,
    )


def _write(name, method, path, reader, **fields):
    kind = f"{name} of a label"
    return _row(
        name,
        method,
        path,
        kind=Effect.WRITE,
        reader=reader,
        write_kind=kind,
        settled="read",
        **fields,
    )


ROWS = (
    _row("list", "GET", "/labels", many=True, parameters=(Parameter(name="limit", where="query", form=Form.INTEGER, wire="limit"),)),
    _row("get", "GET", "/labels/{id}", parameters=(_ID,)),
    _write("create", "POST", "/labels", "labels.list", parameters=(_NAME, _COLOUR)),
    _write("update", "PUT", "/labels/{id}", "labels.get", parameters=(_ID, _COLOUR), needs_field=True),
    _write("delete", "DELETE", "/labels/{id}", "labels.get", parameters=(_ID,), result="Deleted"),
)  # fmt: skip

# --- Step 2: the kinds

_LABEL = ThingKind(
    name="label", fields=("name", "colour"), stored=("id", "name", "colour")
)
LABEL_KINDS = {
    "create of a label": WriteKind(thing=_LABEL, shown_by="list", found_by="name"),
    "update of a label": WriteKind(thing=_LABEL, shown_by="baseline"),
    "delete of a label": WriteKind(thing=_LABEL, shown_by="absence"),
}

# --- The resource and its model


@attrs.frozen(kw_only=True, eq=False, repr=False, getstate_setstate=False)
class Label(Model):
    id: str = ABSENT
    name: str = ABSENT
    colour: str | None = ABSENT


class Labels(Resource):
    __slots__ = ()

    def create(self, name, colour=UNSET):
        return self._write(
            operations.BY_NAME["labels.create"], {"name": name, "colour": colour}
        )

    def update(self, label, **arguments):
        given = {"label": label, **arguments}
        return self._write(operations.BY_NAME["labels.update"], given, baseline=label)

    def delete(self, label):
        return self._write(
            operations.BY_NAME["labels.delete"], {"label": label}, baseline=label
        )


# --- The service


def _list(call):
    return call.success(
        [each for each in call.rows(call.book.downloads).values() if "colour" in each]
    )


def _get(call):
    return call.success(
        call.found(call.rows(call.book.downloads), call.path["id"], "Label")
    )


def _create(call):
    label_id, now = call.state.new_id("label_"), call.state.clock.now_ms()
    record = Record({"id": label_id, "colour": None, **call.body, "created_at": now})
    return call.success(
        call.book.downloads.put(label_id, record), status=201, target=label_id
    )


def _update(call):
    label = call.found(call.rows(call.book.downloads), call.path["id"], "Label")
    label = call.book.downloads.put(label.id, label.with_changes(call.body))
    return call.success(label, target=label.id)


def _delete(call):
    label = call.found(call.rows(call.book.downloads), call.path["id"], "Label")
    call.book.downloads.remove(label.id)
    return Answer({"success": True, "message": "gone"}, target=label.id)


RUNS = (_list, _get, _create, _update, _delete)


@pytest.fixture(autouse=True)
def labels(monkeypatch):
    """Add labels to the package and to the embedded service."""
    added = [
        Route(row.name, row.method, row.path, run)
        for row, run in zip(ROWS, RUNS, strict=True)
    ]
    monkeypatch.setattr(models, "Label", Label, raising=False)
    for row, route in zip(ROWS, added, strict=True):
        monkeypatch.setitem(operations.BY_NAME, row.name, row)
        monkeypatch.setitem(BY_OPERATION, row.name, route)
    for name, kind in LABEL_KINDS.items():
        monkeypatch.setitem(KINDS, name, kind)


async def seeded(service, client):
    """Return the id of a new blue label."""
    many = len(service.ledger.effects("labels.create"))
    return (
        await Labels(options_of(client)).create(name=f"label {many}", colour="blue")
    ).id


async def begin(service, client, write, seeds):
    """Make a write; *seeds* makes the label that it acts on, which only that client has seen."""
    on = Labels(options_of(client))
    if write == "create":
        return on.create(name="mine", colour="red")
    label = await seeded(service, seeds)
    return on.update(label, colour="red") if write == "update" else on.delete(label)


async def arrival(service, operation):
    """Wait until a request of *operation* has arrived."""
    while not service.arrivals(operation):  # noqa: ASYNC110 - the ledger tells nobody
        await asyncio.sleep(0.01)


async def settle_one(write, step, *, knows):
    """Make one write under one fault, and say what is wrong with its verdict, if anything."""
    operation = f"labels.{write}"
    async with (
        new_service() as service,
        client_of(service) as client,
        client_of(service) as other,
    ):
        begun = await begin(service, client, write, client if knows else other)
        service.script(operation, step)
        outcome = await begun.outcome()
        # past the window: a commit after the verdict would show
        await asyncio.sleep(0.45)
        return wrong_about(
            outcome, len(service.ledger.effects(operation)), service.arrivals(operation)
        )


@pytest.mark.parametrize("phase", PHASES, ids=("before", "after", "late"))
@pytest.mark.parametrize("write", ["create", "update", "delete"])
async def test_new_kind_under_every_fault(write, phase):
    """Each fault ends in APPLIED with exactly one effect, whether the client knows the state before or not."""
    cases = [
        (phase.format(fault), knows) for fault in FAULTS for knows in (False, True)
    ]
    found_wrong = await asyncio.gather(
        *(settle_one(write, step, knows=knows) for step, knows in cases)
    )
    wrong = [
        f"{case}: {problem}"
        for case, problem in zip(cases, found_wrong, strict=True)
        if problem
    ]
    assert not wrong, "\n".join(wrong)


async def test_new_update_is_not_sent_over_a_delete_of_somebody_else(service, client):
    """What was deleted after a lost update stays deleted: no second send, and no false verdict."""
    label = await seeded(service, client)
    service.script("labels.update", "reset")
    async with client_of(service) as other:
        written = asyncio.ensure_future(
            Labels(options_of(client)).update(label, colour="red").outcome()
        )
        await arrival(service, "labels.update")
        await Labels(options_of(other)).delete(label)
        outcome = await written

    assert outcome.verdict in (Verdict.UNKNOWN, Verdict.SUPERSEDED)
    assert outcome.evidence.cause in ("gone", "changed since")
    assert service.arrivals("labels.update") == 1
    assert not service.ledger.effects("labels.update")


async def test_new_update_is_not_sent_over_a_change_of_somebody_else(service, client):
    """A state that is neither the one before nor the one that was sent is somebody else's."""
    label = await seeded(service, client)
    service.script("labels.update", "reset")
    async with client_of(service) as other:
        written = asyncio.ensure_future(
            Labels(options_of(client)).update(label, colour="red").outcome()
        )
        await arrival(service, "labels.update")
        await Labels(options_of(other)).update(label, colour="green")
        outcome = await written

    assert outcome.verdict in (Verdict.UNKNOWN, Verdict.SUPERSEDED)
    assert [
        entry.body["colour"] for entry in service.ledger.effects("labels.update")
    ] == ["green"]


async def test_new_siblings_run_one_at_a_time(service, client):
    """Two updates of one label, the first with a lost answer: both verdicts are those of the ledger, in order."""
    label = await seeded(service, client)
    service.script("labels.update", "apply, then reset")
    on = Labels(options_of(client))

    first, second = await asyncio.gather(
        on.update(label, colour="red").outcome(),
        on.update(label, colour="green").outcome(),
    )

    assert (first.verdict, second.verdict) == (Verdict.APPLIED, Verdict.APPLIED)
    assert [
        entry.body["colour"] for entry in service.ledger.effects("labels.update")
    ] == ["red", "green"]


async def test_new_creates_that_could_be_mistaken_for_each_other(service, client):
    """Two equal creates wait for each other; the lost answer of the first is not settled with the second's label."""
    service.script("labels.create", "apply, then reset")
    on = Labels(options_of(client))

    outcomes = await asyncio.gather(
        *(on.create(name="mine").outcome() for _ in range(2))
    )

    made = [entry.target for entry in service.ledger.effects("labels.create")]
    assert [outcome.verdict for outcome in outcomes] == [Verdict.APPLIED] * 2
    assert [outcome.value.id for outcome in outcomes] == made
    assert outcomes[0].secret is None  # a label has none that could be lost


async def test_new_create_beside_an_equal_one_of_somebody_else(service, client):
    """If the create did nothing and somebody else made an equal label at that time, no verdict claims it falsely."""
    service.script("labels.create", "reset")
    async with client_of(service) as other:
        written = asyncio.ensure_future(
            Labels(options_of(client)).create(name="mine").outcome()
        )
        await arrival(service, "labels.create")
        await Labels(options_of(other)).create(name="mine", colour="theirs")
        outcome = await written

    ours = [
        entry
        for entry in service.ledger.effects("labels.create")
        if "colour" not in entry.body
    ]
    assert (outcome.verdict is Verdict.APPLIED) == (len(ours) == 1)


@pytest.mark.parametrize("write", ["create", "update", "delete"])
async def test_intent_of_a_new_kind_settles_after_a_restart(write):
    """Its intent is plain data, from which a client that knows nothing says what became of it."""
    async with new_service() as service:
        async with client_of(service) as client:
            begun, operation = (
                await begin(service, client, write, client),
                f"labels.{write}",
            )
            before = len(service.ledger.effects(operation))
            service.script(operation, "apply, then hang")
            waiting = asyncio.ensure_future(begun.outcome())
            while len(service.ledger.effects(operation)) == before:
                assert not waiting.done(), waiting.result().explain()
                await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            (left,) = client.unsettled
        async with client_of(service) as later:
            outcome = await later.settle(Intent.from_json(left.to_json()))

    assert outcome.verdict is Verdict.APPLIED, outcome.explain()


def test_write_without_a_kind_is_a_mistake_in_the_table():
    """The error names the row, and what to do."""
    row = Operation(
        name="labels.rename",
        method="PUT",
        path="/labels/{id}",
        kind=Effect.WRITE,
        result="Label",
    )

    with pytest.raises(
        LookupError,
        match=r"labels\.rename: write_kind is None\. Name one of .* or add a kind",
    ):
        kind_of_write(row)


def test_nothing_outside_the_table_names_a_kind():
    """The names of the kinds stand in the table of operations and in that of kinds, and nowhere else."""
    package = Path(kinds.__file__).parents[1]
    names = [f'"{name}"' for name in KINDS if not name.endswith("label")]
    naming = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(name in path.read_text(encoding="utf-8") for name in names)
    }
    assert naming == {"api/operations.py", "reconcile/kinds.py"}
