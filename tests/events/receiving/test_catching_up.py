"""
A receiver that was away for longer than the service retries, and is caught up from the lists.

The service and the receiver are on real sockets; only the clock of the service is moved.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import sys
from collections import Counter
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from aiohttp import web

from invsvc_async import (
    ConfigurationError,
    InvalidRequestError,
    ReadRetries,
    events,
)
from invsvc_async.errors import MalformedEventError, ServiceError
from invsvc_async.events.event import CAUGHT_UP_KEY
from invsvc_async.events.stores import open_store
from invsvc_async.testing import quick_client
from tests.events.bodies import HEADER, SECRET, SHARED, encoded, headers_of, v1, v2
from tests.events.receiving.test_receiver import (
    FAST,
    eventually,
    until_none_is_open,
)
from tests.golden.loading import golden_events
from tests.support.database import connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from invsvc_async.simulator import Simulator

pytestmark = pytest.mark.one_python

HOUR = timedelta(hours=1)


class Application:
    """An application with a receiver, which can be away, and what its handlers were called with."""

    def __init__(self, store: Any, service: Simulator, **settings: Any) -> None:
        self.service = service
        self.receiver = events.Receiver(
            secrets=[SECRET],
            shared_header=HEADER,
            mode="inbox",
            store=store,
            inbox=settings.pop("inbox", FAST),
            clock=lambda: service.clock.now_ms() / 1000,
            **settings,
        )
        self.seen: list[events.Event] = []
        if "hand_over" not in settings:
            self.receiver.on("invoice.created", "invoice.canceled")(self.handle)
        self.url = "http://127.0.0.1:9/away"  # the port that discards

    async def handle(self, event: events.Event) -> None:
        self.seen.append(event)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_post("/in", self.receiver.aiohttp_handler)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        away, self.url = self.url, f"http://127.0.0.1:{runner.addresses[0][1]}/in"
        try:
            async with self.receiver:
                yield
        finally:
            self.url = away
            await runner.cleanup()

    async def sent(
        self,
        invoice: Any,
        kind: str = "invoice.created",
        version: Any = "v2",
        **more: Any,
    ) -> list[int | None]:
        """Let the service send an event of *invoice*; return the answers."""
        delivery = await self.service.deliver(
            kind,
            url=self.url,
            version=version,
            resource=invoice,
            headers=dict([SHARED]),
            attempts=1,
            **more,
        )
        return delivery.statuses

    async def caught_up(
        self, client: Any, since: Any, **more: Any
    ) -> events.CatchUpSummary:
        """Catch up, and wait until what was stored is handled."""
        found = await self.receiver.catch_up(since, client=client, **more)
        await until_none_is_open(self.receiver.store)
        return found

    def handled(self) -> Counter[tuple[str, str]]:
        """Return how often each event of each invoice was handled."""
        return Counter((event.type, uuid_of(event)) for event in self.seen)


def uuid_of(event: Any) -> str:
    return event.data.uuid if event.version == "v2" else event.data["uuid"]


def now_of(service: Simulator) -> datetime:
    return datetime.fromtimestamp(service.clock.now_ms() / 1000, UTC)


def made(service: Simulator, *, ago: timedelta = timedelta(0), **fields: Any) -> Any:
    """Make an invoice that was created some time *ago*."""
    at = service.clock.now_ms() - round(ago.total_seconds() * 1000)
    return service.seed_invoice(created_at=at, **{"status": "valid", **fields})


def pass_time(service: Simulator, by: timedelta) -> None:
    service.clock.offset += by.total_seconds()


@pytest.fixture
async def reader(service: Simulator) -> AsyncIterator[Any]:
    async with quick_client(service) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("version", ["v1", "v1.1", "v2"])
async def test_outage_of_an_hour(service, reader, place, version):
    """What was delivered before is known; what was lost is handled once, with its current state, and marked."""
    began = now_of(service)
    app = Application(place, service)
    async with app.running():
        before = [made(service) for _ in range(3)]
        for invoice in before:
            assert await app.sent(invoice, version=version) == [200]
        await until_none_is_open(app.receiver.store)
    lost = []
    for at in range(120):  # more than a page
        pass_time(service, timedelta(seconds=30))
        lost.append(made(service, invoice_type="E" if at < 105 else "P"))
        if at % 20 == 0:
            assert await app.sent(lost[-1], version=version) == [None]
    canceled = {lost[1].uuid, before[0].uuid}
    for uuid in canceled:
        service.book().invoices.items[uuid]["status"] = "canceled"
    async with app.running():
        pass_time(service, timedelta(minutes=10))
        found = await app.caught_up(reader, began)
        again = await app.caught_up(reader, began)

    created = [("invoice.created", each.uuid) for each in (*before, *lost)]
    expected = Counter([*created, *(("invoice.canceled", uuid) for uuid in canceled)])
    assert app.handled() == expected
    marked = {uuid_of(event) for event in app.seen if event.is_catch_up}
    assert marked == {*(each.uuid for each in lost), before[0].uuid}
    shown = [event for event in app.seen if event.is_catch_up]
    assert {event.version for event in shown} == {"v2"}
    assert {
        uuid_of(each) for each in shown if each.data.status == "canceled"
    } == canceled
    assert (found.objects, found.handed, found.known) == (123, 122, 3)
    assert (found.pages, found.passed_over) == (2 + 1, 0)
    assert found.types == ("invoice.created", "invoice.canceled")
    assert (again.objects, again.handed, again.known) == (123, 0, 125)
    assert found.knows_from is not None


async def test_delivery_that_comes_later(service, reader, place):
    """A v2 event that was queued before the lists were read is a duplicate; a newer one, or one of v1, is handled."""
    app = Application(place, service)
    began = now_of(service)
    invoice, other = made(service), made(service)
    queued = service.clock.now_ms()
    pass_time(service, HOUR)
    async with app.running():
        await app.caught_up(reader, began)
        for late in (invoice, other):
            changes = {"created": queued, "id": f"late {late.uuid}"}
            assert await app.sent(late, changes=changes) == [200]
            assert await app.sent(late, changes=changes) == [200]
        await until_none_is_open(app.receiver.store)
        assert app.handled()["invoice.created", invoice.uuid] == 1
        # what happens later is another thing
        pass_time(service, HOUR)
        await app.sent(invoice, "invoice.canceled")
        await app.sent(other, "invoice.created")
        await app.sent(other, version="v1", changes={})
        await until_none_is_open(app.receiver.store)
    assert app.handled()["invoice.canceled", invoice.uuid] == 1
    assert app.handled()["invoice.created", other.uuid] == 3
    assert [event.is_catch_up for event in app.seen].count(True) == 2


async def test_several_handlers_and_an_order(service, reader, place):
    """Each handler has each event once; those with one key are handled in the order in which they were stored."""
    app = Application(place, service)
    began = now_of(service)
    ordered: list[tuple[str, str]] = []

    @app.receiver.on("invoice.*", key=lambda event: event.data.uuid)
    async def in_order(event):
        ordered.append((event.type, event.data.uuid))

    lost = [made(service, status="canceled") for _ in range(5)]
    queued = service.clock.now_ms()
    pass_time(service, HOUR)
    async with app.running():
        found = await app.caught_up(reader, began)
        await app.sent(lost[0], changes={"created": queued})
        await until_none_is_open(app.receiver.store)
    assert found.handed == 10
    assert set(app.handled().values()) == {1}
    for each in lost:
        own = [kind for kind, uuid in ordered if uuid == each.uuid]
        assert own == ["invoice.created", "invoice.canceled"]


async def test_two_processes_at_once(service, reader, place):
    """Each event is stored by one of them, also beside the deliveries of the same events."""
    began = now_of(service)
    lost = [made(service) for _ in range(230)]
    queued = service.clock.now_ms()
    pass_time(service, HOUR)
    apps = [Application(place, service) for _ in range(2)]
    async with apps[0].running(), apps[1].running():

        async def late() -> None:
            for each in lost[::3]:
                await apps[0].sent(each, changes={"created": queued})

        *found, _ = await asyncio.gather(
            *(app.receiver.catch_up(began, client=reader) for app in apps), late()
        )
        await until_none_is_open(apps[0].receiver.store)
    handled = apps[0].handled() + apps[1].handled()
    assert handled == Counter(("invoice.created", each.uuid) for each in lost)
    assert sum(each.handed + each.known for each in found) == 460
    delivered = [event for app in apps for event in app.seen if not event.is_catch_up]
    assert sum(each.handed for each in found) == 230 - len(delivered)


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 1, 2])
async def test_ended_in_the_middle(service, reader, place, after):
    """Cancelled, or ended by an error, at any page: what was stored is handled, and the next call does the rest."""
    began = now_of(service)
    lost = [made(service) for _ in range(250)]
    pass_time(service, HOUR)
    app = Application(place, service)
    async with app.running():
        service.script("invoices.egress", *["pass"] * after, "500")
        once = reader.with_options(reads=ReadRetries(attempts=1))
        with pytest.raises(ServiceError) as failed:
            await app.receiver.catch_up(began, client=once)
        assert failed.value.resume_token
        await until_none_is_open(app.receiver.store)
        assert len(app.seen) == 100 * after
    later = Application(place, service)
    async with later.running():
        found = await later.caught_up(reader, began)
    assert (found.known, found.handed) == (100 * after, 250 - 100 * after)
    handled = app.handled() + later.handled()
    assert handled == Counter(("invoice.created", each.uuid) for each in lost)


async def test_times(service, reader, tmp_path):
    """Newer invoices are left out, by default those of the last five minutes; wrong times are refused in words."""
    app = Application(tmp_path / "events.db", service)
    old, some, new = (
        made(service, ago=timedelta(minutes=each)) for each in (90, 30, 1)
    )
    now = now_of(service)
    async with app.running():
        found = await app.caught_up(reader, now - HOUR)
        assert [*app.handled()] == [("invoice.created", some.uuid)]
        assert now - timedelta(minutes=5) <= found.until <= now - timedelta(minutes=4)
        await app.caught_up(reader, now - HOUR, until=now)
        assert app.handled()["invoice.created", new.uuid] == 1
        await app.caught_up(reader, now - 2 * HOUR, until=now - HOUR)
        assert set(app.handled().values()) == {1}
        assert app.handled()["invoice.created", old.uuid] == 1
        for wrong, words in (
            ({"since": datetime(2026, 1, 1)}, "since: has no time zone"),  # noqa: DTZ001 - refused
            ({"since": "yesterday"}, "since: is text, not an aware datetime"),
            ({"since": now}, "since: is less than 5 minutes ago"),
            ({"since": now, "until": now - HOUR}, "since: is later than until"),
            ({"since": now, "until": 10**18}, "until: is after the year 9999"),
        ):
            with pytest.raises(InvalidRequestError, match=words):
                await app.receiver.catch_up(client=reader, **wrong)


async def test_types_that_no_list_can_stand_for(service, reader, tmp_path, caplog):
    """They are named; without a handler of a type that one can stand for, nothing is read."""
    receiver = events.Receiver(
        secrets=[SECRET], mode="inbox", store=tmp_path / "events.db"
    )
    receiver.on("payment.*", "invoice.failed")(asyncio.sleep)
    now = now_of(service)
    found = await receiver.catch_up(now - HOUR, client=reader)
    assert (found.types, found.pages) == ((), 0)
    assert found.not_listed == (
        "invoice.failed", "payment.canceled", "payment.created", "payment.deleted", "payment.succeeded",
        "payment.upcoming_due_date", "payment.updated",
    )  # fmt: skip
    assert "No list can stand for invoice.failed, payment" in found.explain()
    assert not service.arrivals("invoices.egress")
    receiver.on("invoice.canceled")(asyncio.sleep)
    made(service, ago=HOUR / 2)
    made(service, ago=HOUR / 2, status="canceled")
    with caplog.at_level(logging.INFO, "invsvc_async.events"):
        found = await receiver.catch_up(now - HOUR, client=reader)
    assert (found.types, found.objects, found.handed) == (("invoice.canceled",), 2, 1)
    assert "has no handled event" in caplog.text
    await receiver.store.close()


async def test_invoice_without_a_usable_uuid(service, reader, tmp_path, caplog):
    """It is passed over, counted and logged; the others are handed over."""
    app = Application(tmp_path / "events.db", service)
    began = now_of(service)
    good = made(service)
    for uuid in ("a\nb", "x" * 101, ""):
        bad = made(service)
        bad["uuid"] = uuid
    pass_time(service, HOUR)
    async with app.running():
        found = await app.caught_up(reader, began)
    assert (found.objects, found.handed, found.passed_over) == (4, 1, 3)
    assert [*app.handled()] == [("invoice.created", good.uuid)]
    assert caplog.text.count("is passed over") == 3


async def test_receivers_that_cannot(service, reader, tmp_path):
    """One that handles first, or whose store does not know what events are about, says so in words."""
    inline = events.Receiver(secrets=[SECRET], store=tmp_path / "events.db")
    now = now_of(service)
    with pytest.raises(ConfigurationError, match="mode='inline'"):
        await inline.catch_up(now, client=reader)

    names = {*vars(events.Store), *vars(events.HandlerStore)} - {"__init__"}
    methods = {
        each: getattr(events.MemoryStore, each) for each in names if each[0] != "_"
    }
    Own = type("Own", (), methods)  # noqa: N806 - a class
    assert isinstance(Own(), events.Store)
    own = events.Receiver(secrets=[SECRET], mode="inbox", store=Own())
    with pytest.raises(ConfigurationError, match="a Own does not know"):
        await own.catch_up(now - HOUR, client=reader)
    app = Application(tmp_path / "events.db", service)
    with pytest.raises(ConfigurationError, match=r"client: str .*Pass a Client"):
        await app.receiver.catch_up(now - HOUR, client="team_1")


async def test_for_a_queue_of_the_application(service, reader, tmp_path):
    """Its events are handed over, and parsed elsewhere they are still marked."""
    taken: list[tuple[str | None, bytes]] = []
    app = Application(
        tmp_path / "events.db",
        service,
        hand_over=lambda event: taken.append((event.dedupe_key, event.raw)),
    )
    began = now_of(service)
    invoice = made(service)
    pass_time(service, HOUR)
    async with app.running():
        found = await app.caught_up(reader, began)
    [(key, raw)] = taken
    event = events.parse(raw)
    assert (event.dedupe_key, event.is_catch_up) == (key, True)
    assert (event.data.uuid, event.data.total) == (invoice.uuid, invoice["total"])
    assert event.created <= now_of(service)
    assert event.livemode is invoice["livemode"]
    assert "payment.created" in found.not_listed


async def test_delivery_that_says_so(tmp_path):
    """No delivery is marked: one that says so is kept as a dead letter, also when it is revived."""
    store = open_store(str(tmp_path / "events.db"))
    receiver = events.Receiver(secrets=[SECRET], shared_header=HEADER, mode="inbox", store=store, inbox=FAST)  # fmt: skip
    seen: list[events.Event] = []

    @receiver.on("*")
    async def handle(event):
        seen.append(event)

    raw = encoded(v2("invoice.created", id="catch-up:invoice.created:U-1"))
    async with receiver:
        receipt = await receiver.receive(raw, headers_of(raw, shared=True))
        assert (receipt.status, receipt.outcome) == (202, "dead letter")
        [letter] = await store.events(state="dead")
        assert "one of those that Receiver.catch_up makes" in letter.reason
        assert await store.revive(letter)
        await until_none_is_open(store)
        assert len(await store.events(state="dead")) == 1
    assert seen == []
    with pytest.raises(MalformedEventError):
        events.read(raw, headers_of(raw, shared=True), shared_header=HEADER)
    other = events.parse(encoded(v2("invoice.created")))
    assert not other.is_catch_up
    assert not events.parse(encoded(v1("invoice.created"))).is_catch_up


async def test_mark_after_a_restart(service, reader, place):
    """What is handled by another process, later, is marked as well."""
    began = now_of(service)
    made(service)
    pass_time(service, HOUR)
    first = Application(place, service)
    await first.receiver.catch_up(began, client=reader)
    await first.receiver.store.close()
    later = Application(place, service)
    async with later.running():
        await eventually(lambda: later.seen)
        await until_none_is_open(later.receiver.store)
    assert [event.is_catch_up for event in later.seen] == [True]


# --- what a store knows


async def test_what_was_pruned(service, reader, place):
    """It is handled again, and the result says since when the store knows."""
    app = Application(place, service, inbox=attrs.evolve(FAST, keep=1e9))
    began = now_of(service) - timedelta(seconds=1)
    invoice = made(service)
    async with app.running():
        await app.sent(invoice)
        await until_none_is_open(app.receiver.store)
        assert await app.receiver.store.prune(older_than=-1) == 1
        pass_time(service, HOUR)
        found = await app.caught_up(reader, began)
        assert (found.handed, found.knows_from) == (1, None)
        assert app.handled()["invoice.created", invoice.uuid] == 2
        again = await app.caught_up(reader, began)
        assert (again.handed, again.known) == (0, 1)
        assert again.knows_from > began
        assert "handled before" in again.explain()


async def of_version_1(place: str) -> None:
    """Store events in the golden tables as the receiver of 0.1.0 did."""
    rows = [
        ("v2", "invoice.created", encoded(v2("invoice.created", number=1)), "handled"),
        (
            "\nv1",
            "invoice.created",
            encoded(v1("invoice.created", data={"uuid": "u-2"})),
            "open",
        ),
        ("gone", "invoice.created", None, "handled"),
        ("other", "payment.created", encoded(v2("payment.created")), "handled"),
    ]
    text = "INSERT INTO {} (key, type, body, state, due, received) VALUES ({}, {}, {}, {}, 1, 1800000000)"
    if "://" not in place:
        with closing(sqlite3.connect(place)) as db, db:
            db.executemany(text.format("delivery", *"????"), rows)
        return
    async with connected(place) as connection:
        await connection.executemany(
            text.format("invsvc_delivery", "$1", "$2", "$3", "$4"), rows
        )


@pytest.mark.parametrize("which", ["sqlite", "postgres"])
async def test_store_of_the_first_version(service, reader, tmp_path, which):
    """Its events are known by their bodies; those without are not, which the result says."""
    async with golden_events("v0_1_0", which, tmp_path) as place:
        await of_version_1(place)
        store = open_store(place)
        subjects = ["U-1", "U-2", "U-3"]
        await store.open()
        assert await store.name_subjects(100) >= 3
        assert await store.name_subjects(100) == 0
        assert await store.knows_from() == 1_800_000_000
        given = [
            [
                events.Delivery(
                    key=None,
                    type="invoice.created",
                    body=b"{}",
                    subject=f"invoice.created:{each}",
                )
            ]
            for each in subjects
        ]
        assert await store.put_unseen(given) == [False, False, True]
        found = [each for each in await store.events() if each.key]
        assert f"{CAUGHT_UP_KEY}invoice.created:U-3" in {each.key for each in found}
        await store.close()


async def test_claim_is_not_known(kept):
    """While only a claim of an event is stored, its sender has it; once it is handled, it is known."""
    store = kept.store
    await store.open()
    delivery = events.Delivery(key="d_1", type="invoice.created", body=None, subject="invoice.created:U-1")  # fmt: skip
    entry = await store.claim(delivery, lease=10)
    made_up = attrs.evolve(delivery, key=None, body=b"{}", as_of=5.0)
    other = attrs.evolve(made_up, subject="invoice.created:U-2")
    assert await store.handled(entry)
    assert list(await store.put_unseen([[made_up], [other]])) == [False, True]
    assert list(await store.put_unseen([[made_up], [other]])) == [False, False]
    late = attrs.evolve(other, key="d_2")
    assert not await store.put(late)
    assert not await store.put(late, [attrs.evolve(late, handler="second")])
    assert await store.put(attrs.evolve(late, key="d_3", as_of=6.0))
    assert await store.put(attrs.evolve(late, key="d_4", as_of=None))
    claimed = attrs.evolve(delivery, key="d_5", subject="invoice.created:U-3")
    assert isinstance(await store.claim(claimed, lease=10), events.Entry)
    third = attrs.evolve(made_up, subject="invoice.created:U-3")
    assert list(await store.put_unseen([[third]])) == [True]


# --- kills


async def killed(place: str, service: Simulator, pages: int) -> None:
    """Catch up in a process of its own, by the command, and kill it once it has asked for so many pages."""
    command = ["-m", "invsvc_async.cli", "events", "catch-up", place, "--since", "45m"]
    before = service.arrivals("invoices.egress")
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        env={
            **os.environ,
            "INVSVC_BASE_URL": service.base_url,
            "INVSVC_API_KEY": service.api_key,
        },
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        await eventually(
            lambda: service.arrivals("invoices.egress") >= before + pages,
            within=120,
        )
    finally:
        child.kill()
        await child.wait()


@pytest.mark.slow
async def test_killed_at_any_page(service, reader, place):
    """Whatever was stored is handled, and called again it does the rest: nothing twice, and nothing is lost."""
    lost = [made(service, ago=HOUR / 2) for _ in range(650)]
    app = Application(place, service)
    await app.receiver.store.open()
    for pages in (1, 3, 5):
        await killed(place, service, pages)
    async with app.running():
        found = await app.caught_up(reader, now_of(service) - 0.75 * HOUR)
    assert found.objects == 650
    assert found.known > 0
    assert app.handled() == Counter(("invoice.created", each.uuid) for each in lost)


# --- at the same time


async def test_delivery_that_is_being_stored(own_postgres):
    """What another connection is storing at this moment is waited for, and known then."""
    store = events.PostgresStore(own_postgres)
    await store.open()
    made_up = events.Delivery(
        key=None, type="invoice.created", body=b"{}", subject="invoice.created:U-1"
    )
    async with connected(own_postgres) as other:
        await other.execute("BEGIN")
        await other.execute(
            "INSERT INTO invsvc_delivery (key, type, body, state, due, received, subject) "
            "VALUES ('d_1', 'invoice.created', '{}', 'open', 0, 0, 'invoice.created:U-1')"
        )
        putting = asyncio.create_task(store.put_unseen([[made_up]]))

        async def has_come() -> bool:
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            async with connected(own_postgres) as third:
                return putting.done() or await third.fetchval(waiting) > 0

        await eventually(has_come)
        await other.execute("COMMIT")
    assert await putting == [False]
    assert len(await store.events()) == 1
    await store.close()


@pytest.mark.parametrize("handlers", [1, 2])
async def test_event_that_is_being_made(own_postgres, handlers):
    """A delivery that comes while its event is stored from a list waits for that, and is a duplicate then."""
    store = events.PostgresStore(own_postgres)
    await store.open()
    deliveries = [
        events.Delivery(
            key="d_1",
            type="invoice.created",
            body=b"{}",
            handler=f"of {each}",
            subject="invoice.created:U-1",
            as_of=5.0,
        )
        for each in range(handlers)
    ]
    async with connected(own_postgres) as other:
        await other.execute("BEGIN")
        await other.execute("LOCK TABLE invsvc_delivery IN SHARE ROW EXCLUSIVE MODE")
        putting = asyncio.create_task(store.put(deliveries[0], deliveries[1:]))

        async def has_come() -> bool:
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            async with connected(own_postgres) as third:
                return putting.done() or await third.fetchval(waiting) > 0

        await eventually(has_come)
        await other.execute(
            "INSERT INTO invsvc_delivery (key, type, body, state, due, received, subject, as_of) VALUES ($1, "
            "'invoice.created', '{}', 'open', 0, 0, 'invoice.created:U-1', 6)",
            f"{CAUGHT_UP_KEY}invoice.created:U-1",
        )
        await other.execute("COMMIT")
    assert await putting is False
    assert len(await store.events()) == 1
    await store.close()
