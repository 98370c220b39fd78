"""Exact JSON, the shelf's past, and the service's clock."""

import itertools
import time
from decimal import Decimal

import pytest

from invsvc_async.simulator import Simulator, state
from invsvc_async.simulator.json_records import Record, json_text, read_json
from invsvc_async.simulator.ledger import SENDER
from invsvc_async.simulator.state import Shelf

from .conftest import HOOK, Caller, plain_session

pytestmark = pytest.mark.one_python


def test_json_round_trip_with_decimals():
    """Every digit survives decoding and encoding, at any depth."""
    text = r'{"a":[1.10,{"b":1E-7},[],{}],"c":"\u00e9\"","d":null,"e":123456789012345678901.5,"g":-0.0}'
    assert json_text(read_json(text.encode())) == text
    assert json_text({"plain": ["x", 1, None]}) == '{"plain":["x",1,null]}'
    assert json_text((Decimal("1.0"), ())) == "[1.0,[]]"


def test_json_of_what_is_no_json():
    """A value that is not JSON is a programming error."""
    with pytest.raises(TypeError, match="not JSON"):
        json_text({"a": object()})


def test_record_attributes():
    """A field can be read as an attribute; an absent one raises AttributeError."""
    record = Record(id="wh_1")
    assert record.id == record["id"] == "wh_1"
    with pytest.raises(AttributeError, match="url"):
        _ = record.url


def test_shelf_shows_its_past():
    """Past states have what was stored then; seeded records have always existed."""
    shelf = Shelf()
    shelf.seed(Record(id="a", n=1))
    before = time.monotonic()
    while time.monotonic() == before:
        pass
    shelf.put("a", Record(id="a", n=2))
    shelf.put("b", Record(id="b", n=1))
    shelf.remove("a")
    assert set(shelf.as_of(None)) == {"b"}
    assert shelf.as_of(before) == {"a": {"id": "a", "n": 1}}
    assert set(shelf.as_of(time.monotonic())) == {"b"}


def test_shelf_forgets_the_distant_past(monkeypatch):
    """States older than the limit are dropped."""
    monkeypatch.setattr(state, "PAST_KEPT", 0.0)
    shelf = Shelf()
    for number in range(100):
        started = time.monotonic()
        while time.monotonic() == started:
            pass
        shelf.put("a", Record(id="a", n=number))
    assert len(shelf._undo) == 1


@pytest.mark.parametrize("offset", [3600.0, -3600.0])
async def test_clock_shift(service, call, offset):
    """The service's clock determines envelopes, `created_at` and `last_updated`, in both directions."""
    service.clock.offset = offset
    answered = (await call("POST", "/webhooks", json=HOOK)).body
    updated = (await call("PUT", "/journeys/jrn_1", json={"name": "x"})).body
    expected = (time.time() + offset) * 1000
    for shown in (
        answered["timestamp"],
        answered["data"]["created_at"],
        updated["data"]["last_updated"],
    ):
        assert abs(shown - expected) < 5000


async def test_injected_clock():
    """Envelopes, records, the ledger and the past of shelves all use the given clock."""
    ticks = itertools.count(1)
    clock = state.ServiceClock(
        offset=2.0, wall=lambda: 1000.0, steady=lambda: float(next(ticks))
    )
    async with Simulator(clock=clock) as service, plain_session() as session:
        call = Caller(session, service)
        answered = (await call("POST", "/webhooks", json=HOOK)).body
        hook_id = answered["data"]["id"]
        service.remove_webhook(hook_id)
        made, removed = service.ledger.entries

    assert service.clock is clock
    assert (answered["timestamp"], answered["data"]["created_at"]) == (
        1_002_000,
        1_002_000,
    )
    assert 0 < made.received_at < made.applied_at < removed.applied_at < 100
    webhooks = service.book().webhooks
    assert (
        hook_id in webhooks.as_of(made.applied_at),
        hook_id in webhooks.as_of(None),
    ) == (True, False)


async def test_sender_in_the_ledger(service, call):
    """The ledger attributes a request to the write in its header; without one, to nobody."""
    await call("POST", "/webhooks", json=HOOK)
    address, token = (
        f"{service.base_url}/webhooks",
        {"Authorization": f"Bearer {service.api_key}"},
    )
    async with plain_session() as session:
        await session.post(address, json=HOOK, headers={**token, SENDER: "w7"})
        await session.get(address, headers={**token, SENDER: "w8"})

    assert [entry.sender for entry in service.ledger.entries] == [None, "w7"]
    assert [entry.sender for entry in service.ledger.reads] == ["w8"]


async def test_somebody_else(service, call):
    """Changes by others are visible in reads, recorded as theirs, and not counted as arrivals."""
    hook = service.seed_webhook()
    service.change_journey("jrn_1", name="Theirs")
    service.change_journey("jrn_1", name="Theirs, undated", last_updated=None)
    service.change_webhook(hook.id, status="inactive")
    service.remove_webhook(hook.id)
    assert service.arrivals() == 0
    journey = (await call("GET", "/journeys/jrn_1")).body["data"]
    assert (journey["name"], journey["last_updated"]) == ("Theirs, undated", None)
    entries = service.ledger.entries
    assert [(entry.operation, entry.by, entry.applied) for entry in entries] == [
        ("journeys.update", "other", True),
        ("journeys.update", "other", True),
        ("webhooks.update", "other", True),
        ("webhooks.delete", "other", True),
    ]
    assert (
        service.ledger.find(
            "webhooks.update", lambda body: body["status"] == "inactive"
        )[0].target
        == hook.id
    )


async def test_records_repeat_with_the_seed(service):
    """The same seed gives the same folios."""
    assert list(Simulator(seed=7).book().invoices.items) == list(
        service.book().invoices.items
    )
    assert list(Simulator(seed=8).book().invoices.items) != list(
        service.book().invoices.items
    )
