"""Recorded samples of every resource, decoded and encoded without loss."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import attrs
import pytest

from invsvc_async import codec, models
from invsvc_async.codec import envelope
from invsvc_async.models.common import Model, stored_value, wire_names
from tests.codec.recorded import SAMPLES, spelt


def read(name: str) -> Any:
    """Decode the sample of the model called *name*."""
    return codec.decode(getattr(models, name), SAMPLES[name].encode())


def known(cls: type[Model]) -> set[str]:
    """Return the names of the fields of *cls*."""
    return set(wire_names(cls))


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_has_no_problem_and_nothing_unknown(name):
    """Each member of a sample is a field of its model, with the right type."""
    found = read(name)

    assert found.problems == ()
    assert name == "ReminderOperation" or not found.extra


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_goes_back_digit_by_digit(name):
    """A sample is encoded as received, including absent fields, nulls and the notation of numbers."""
    plain = envelope.loads(SAMPLES[name].encode())

    assert spelt(codec.unstructure(read(name))) == spelt(plain)
    assert spelt(
        envelope.loads(envelope.dumps(codec.unstructure(read(name))))
    ) == spelt(plain)


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_by_the_careful_way_is_the_same(name):
    """Plain data and bytes give equal models."""
    assert codec.structure(
        getattr(models, name), envelope.loads(SAMPLES[name].encode())
    ) == read(name)


@pytest.mark.parametrize(
    "name", [name for name in SAMPLES if name not in {"ReminderOperation", "Journey"}]
)
def test_model_field_is_in_the_sample(name):
    """The samples contain all fields except those that the specification calls optional."""
    found = read(name)
    absent = {
        field
        for field in known(type(found))
        if stored_value(found, field) is models.UNSET
    }

    assert absent <= {"status"}


def test_invoice_reads_in_its_types():
    """Amounts are decimals with the wire's digits, times are aware, known states are enum members."""
    invoice = read("Invoice")

    assert str(invoice.total) == "1234567890.123456789"
    assert str(invoice.withholding_taxes) == "0.00"
    assert invoice.exchange_rate == 1
    assert isinstance(invoice.exchange_rate, Decimal)
    assert invoice.created_at == datetime(2025, 5, 1, 0, 0, 0, 123000, tzinfo=UTC)
    assert invoice.status is models.InvoiceStatus.VALID
    assert invoice.client.address.city == "Monterrey"
    assert invoice.items[0].unit_price == Decimal("10.5")
    assert invoice.from_ == "api"
    assert invoice.invoices == ({"amount": Decimal("1.10")},)


def test_journey_reads_its_graph_in_floats():
    """Camel-case names become snake-case; coordinates are floats."""
    journey = read("Journey")

    assert journey.trigger_type == "invoice.overdue"
    assert journey.cloned_from.journey_id == "jrn_0"
    assert journey.cloned_from.group_id is None
    assert journey.from_ is models.JourneyOrigin.AI_BUILDER
    node = journey.graph.nodes[1]
    assert (node.position.x, node.position.y, type(node.position.y)) == (
        0.1,
        3000.0,
        float,
    )
    assert journey.graph.nodes[0].data.config == {"delay": Decimal("1.5")}


def test_team_integrations_are_models_by_name():
    """An object keyed by name keeps its keys, and its values are models."""
    team = read("Team")

    assert team.integrations["dbtable"] == models.Integration(
        completed=False, category="data"
    )
    assert team.credit_limit is None


def test_webhook_event_of_the_future_stays_its_text():
    """An unknown event name is kept as received; a known one is a member."""
    events = read("Webhook").events

    assert events == ("invoice.created", "tomorrow.invented")
    assert [type(event) for event in events] == [models.EventType, str]


def test_reminder_operation_is_kept_raw():
    """Its shape is not specified, so ``content`` has all of it."""
    assert read("ReminderOperation").content["receipt"] == {"at": 1746057600123}
    assert read("ReminderOperation").content["cost"] == Decimal("0.10")


@pytest.mark.parametrize("name", SAMPLES)
def test_sample_field_that_is_null_where_it_may_not_be_is_a_problem(name):
    """Null is accepted only where the specification allows it; elsewhere it is a problem of the field."""
    cls = getattr(models, name)
    plain = dict.fromkeys(wire_names(cls).values())
    nullable = {
        field.name
        for field in attrs.fields(cls)
        if "None" in str(field.type) or field.type == "Any"
    }

    found = codec.structure(cls, plain)

    assert {problem.address[2:] for problem in found.problems} == {
        name for field, name in wire_names(cls).items() if field not in nullable
    }
