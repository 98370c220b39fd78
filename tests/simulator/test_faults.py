"""Each fault on a real socket, before, after and later than the effect, compared with the ledger."""

import asyncio
import contextlib
import random
from unittest.mock import Mock

import aiohttp
import pytest

from invsvc_async.simulator import Faults, Simulator, service as service_module
from invsvc_async.simulator.faults import KINDS, parse_step
from invsvc_async.simulator.replies import Broken, cut_off
from tests.support.virtual_time import service_clock

from .conftest import HOOK, Caller, plain_session

pytestmark = [pytest.mark.one_python, pytest.mark.loop_time]

# What a plain client sees: a status, or the end of the exchange without a whole answer.
SEEN = {
    "500": (500, "application/json"),
    "501": (501, "application/json"),
    "404": (404, "application/json"),
    "gone 404": (404, "application/json"),
    "409": (409, "application/json"),
    "own 503": (503, "application/json"),
    "401 raw": (401, "application/json"),
    "502": (502, "text/html"),
    "503": (503, "text/html"),
    "504": (504, "text/html"),
    "408": (408, "text/html"),
    "gateway 404": (404, "text/html"),
    "gateway 500": (500, "text/html"),
    "html": (200, "text/html"),
    "empty": (200, "application/json"),
    "garbage": (200, "application/json"),
    "success false": (200, "application/json"),
    "reset": aiohttp.ClientOSError,
    "close": aiohttp.ServerDisconnectedError,
    "half-head": aiohttp.ServerDisconnectedError,
    "head then close": aiohttp.ServerDisconnectedError,
    "truncate": aiohttp.ClientPayloadError,
    "hang 0.05": aiohttp.ServerDisconnectedError,
}


async def seen(call, method, path, **more):
    """Send one request and return what was received, in the terms of `SEEN`."""
    url = call.service.base_url + path
    headers = {"Authorization": f"Bearer {call.service.api_key}"}
    try:
        async with call.session.request(
            method, url, headers=headers, **more
        ) as response:
            await response.read()
            return response.status, response.content_type
    except aiohttp.ClientError as error:
        return type(error)


def matches(found, wanted):
    """Compare; subclasses of an expected exception are accepted."""
    if isinstance(wanted, tuple):
        return found == wanted
    return isinstance(found, type) and issubclass(found, wanted)


@pytest.mark.parametrize("end", SEEN)
async def test_write_before_and_after_the_effect(service, call, end):
    """Every end comes without an effect by default, and with one after "apply, then"."""
    service.script("webhooks.create", end, f"apply, then {end}")
    for applied in (False, True):
        assert matches(await seen(call, "POST", "/webhooks", json=HOOK), SEEN[end])
        entry = service.ledger.entries[-1]
        assert entry.applied is applied
        assert entry.fault == (f"apply, then {end}" if applied else end)
        whole = isinstance(SEEN[end], tuple)
        assert entry.answered == (SEEN[end][0] if whole else None)
        assert entry.refused is (
            not applied and end in {"404", "gone 404", "409", "401 raw"}
        )
        assert len(service.book().webhooks.items) == applied
    assert service.arrivals("webhooks.create") == 2


@pytest.mark.parametrize(
    "end", ["500", "reset", "close", "truncate", "hang 0.05", "empty", "504"]
)
async def test_write_whose_effect_comes_late(service, call, end):
    """A late effect happens after the answer, at its time."""
    hook = service.seed_webhook()
    service.script("webhooks.delete", f"late 0.15, then {end}")
    started = service.clock.steady()
    assert matches(await seen(call, "DELETE", f"/webhooks/{hook.id}"), SEEN[end])
    (entry,) = service.ledger.entries
    assert (entry.applied, entry.late) == (False, True)
    assert hook.id in service.book().webhooks.items
    await service.settled()
    assert entry.applied_at - started >= 0.15
    assert entry.late
    assert hook.id not in service.book().webhooks.items


def test_reset_after_the_client_has_left():
    """A connection over TLS that is being closed has no socket any more."""
    transport = Mock(asyncio.Transport)
    transport.get_extra_info.return_value = None

    assert isinstance(cut_off(Mock(transport=transport), "reset"), Broken)
    transport.abort.assert_called_once_with()


async def test_late_effect_that_the_service_refuses(service, call):
    """A late effect on a resource that is gone by then never happens."""
    hook = service.seed_webhook()
    service.script("webhooks.delete", "late 0.05, then 500")
    await seen(call, "DELETE", f"/webhooks/{hook.id}")
    service.remove_webhook(hook.id)
    await service.settled()
    theirs, ours = sorted(
        service.ledger.entries, key=lambda entry: entry.by == "client"
    )
    assert (theirs.by, theirs.applied) == ("other", True)
    assert (ours.applied, ours.late) == (False, False)


@pytest.mark.parametrize("end", SEEN)
async def test_read_that_fails(service, call, end):
    """Reads end in the same ways, and are not entered among the writes."""
    service.script("webhooks.list", end)
    assert matches(await seen(call, "GET", "/webhooks"), SEEN[end])
    assert (await call("GET", "/webhooks")).status == 200
    assert service.ledger.entries == []
    assert [entry.fault for entry in service.ledger.reads] == [end, None]


async def test_steps_follow_arrivals(service, call):
    """Steps apply to consecutive arrivals of their operation only; afterwards there are no faults."""
    service.script("webhooks.create", "pass", "500")
    service.script("webhooks.create", "apply, then 502")
    assert (await call("GET", "/webhooks")).status == 200
    statuses = [(await call("POST", "/webhooks", json=HOOK)).status for _ in range(4)]
    assert statuses == [201, 500, 502, 201]
    assert len(service.ledger.effects("webhooks.create")) == 3


async def test_rate_limits(service, call):
    """A 429 has `Retry-After` and the shared code, except for credits, which have neither."""
    service.script("webhooks.list", "429", "429 after 0.2", "429 credits")
    plain, soon, spent = [await call("GET", "/webhooks") for _ in range(3)]
    assert (plain.headers["Retry-After"], plain.body["error"]["code"]) == (
        "1",
        "rate_limit_exceeded",
    )
    assert soon.headers["Retry-After"] == "0.2"
    assert "Retry-After" not in spent.headers
    assert spent.body["error"]["code"] == "document_credits_exhausted"


async def test_error_bodies(service, call):
    """The service's envelope, the authentication layer's raw body and an unsuccessful 200 are as specified."""
    service.script("webhooks.list", "500", "401 raw", "success false")
    own, raw, unsuccessful = [(await call("GET", "/webhooks")).body for _ in range(3)]
    assert own.keys() == {"success", "error", "timestamp"}
    assert own["error"]["code"] == "internal_server_error"
    assert raw == {"message": "Unauthorized"}
    assert unsuccessful["success"] is False


async def test_client_that_leaves_a_dripping_answer(service, call, caplog):
    """It had enough, which is no error of the service."""
    service.script("webhooks.list", "drip")
    headers = {"Authorization": f"Bearer {service.api_key}"}
    async with call.session.get(
        f"{service.base_url}/webhooks", headers=headers
    ) as response:
        response.close()
    async with asyncio.timeout(300):
        while service.ledger.reads[-1].ended_at is None:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.02)
    assert (await call("GET", "/webhooks")).status == 200
    assert caplog.records == []


async def test_slow_and_drip_are_true_answers(service, call):
    """Slow answers are true; a bare one is true without its payload."""
    service.script(
        "webhooks.create", "slow 0.1", "apply, then slow 0.1", "drip", "bare"
    )
    answers = []
    for _ in range(3):
        started = service.clock.steady()
        answers.append(await call("POST", "/webhooks", json=HOOK))
        assert service.clock.steady() - started >= 0.1
    assert [answered.status for answered in answers] == [201, 201, 201]
    assert "data" not in (await call("POST", "/webhooks", json=HOOK)).body
    before, after, *_ = service.ledger.effects()
    assert before.applied_at - before.received_at >= 0.1
    assert after.applied_at - after.received_at < 0.1


async def test_hang_until_the_client_leaves(service, call):
    """A hanging answer ends when the client disconnects, and the service still works."""
    before = len(asyncio.all_tasks())
    service.script("webhooks.create", "apply, then hang")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await call("POST", "/webhooks", json=HOOK)
    assert service.ledger.effects()[0].answered is None
    async with asyncio.timeout(300):
        while len(asyncio.all_tasks()) > before:  # noqa: ASYNC110 - nobody is told when it is given up
            await asyncio.sleep(0.01)
    assert (await call("GET", "/webhooks")).status == 200


async def test_hang_until_shutdown(monkeypatch):
    """Stopping ends a hanging exchange at once, without waiting."""
    monkeypatch.setattr(service_module, "PATIENCE", 60)
    async with plain_session() as session, asyncio.timeout(300):
        async with Simulator() as service:
            service.script("webhooks.list", "hang")
            waiting = asyncio.create_task(
                seen(Caller(session, service), "GET", "/webhooks")
            )
            await service.arrived("webhooks.list")
        assert matches(await waiting, aiohttp.ServerDisconnectedError)


async def test_client_that_leaves_early(service, call):
    """A request that has arrived is executed, even if the client has disconnected."""
    service.script("webhooks.create", "slow 0.1")
    sending = asyncio.create_task(call("POST", "/webhooks", json=HOOK))
    await service.arrived("webhooks.create")
    sending.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await sending
    assert service.ledger.effects() == []
    await service.settled()
    assert len(service.ledger.effects()) == 1


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 500\r\n\r\n{",
        b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    ],
)
async def test_body_that_never_arrives_whole(service, caplog, rest):
    """A request with a truncated body is not an arrival, and is not logged."""
    host, port = service.base_url.split("/")[2].split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /v2/webhooks HTTP/1.1\r\nHost: x\r\n")
    await asyncio.sleep(0.02)
    writer.write(rest)
    await writer.drain()
    await asyncio.sleep(0.02)
    writer.close()
    await writer.wait_closed()
    await asyncio.sleep(0.05)
    assert service.arrivals() == 0
    assert caplog.records == []


@pytest.mark.parametrize("step", ["idle-close 0.01", "idle-close"])
async def test_idle_close(service, step):
    """After a true answer the kept connection is closed a moment later."""
    async with plain_session() as session:
        service.script("webhooks.list", step)
        call = Caller(session, service)
        assert (await call("GET", "/webhooks")).status == 200
        (connection,) = next(iter(session.connector._conns.values()))
        async with asyncio.timeout(300):
            while connection[0].is_connected():  # noqa: ASYNC110 - the pool tells nobody
                await asyncio.sleep(0.005)
        assert (await call("GET", "/webhooks")).status == 200


async def test_stale_read(service, call):
    """A stale read shows changed, new and removed records as they were."""
    kept, gone = service.seed_webhook(description="old"), service.seed_webhook()
    await asyncio.sleep(0.15)
    service.change_webhook(kept.id, description="new")
    service.remove_webhook(gone.id)
    await call("POST", "/webhooks", json=HOOK)
    service.script("webhooks.list", "stale 0.1", "pass")
    past, now = [(await call("GET", "/webhooks")).body["data"] for _ in range(2)]
    assert {hook["id"]: hook.get("description") for hook in past} == {
        kept.id: "old",
        gone.id: None,
    }
    assert [hook.get("description") for hook in now] == [None, "new"]


async def test_bad_item(service, call):
    """A page with one bad item has a total that is not a number; the record itself is intact."""
    service.script("invoices.egress", "bad item")
    bad = (await call("GET", "/invoices/egress")).body["data"]
    good = (await call("GET", "/invoices/egress")).body["data"]
    assert [invoice["total"] == "abc" for invoice in bad] == [True] + [False] * 9
    assert bad[1:] == good[1:]


@pytest.mark.parametrize(
    ("operation", "step", "reason"),
    [
        ("webhooks.create", "explode", "step not understood: 'explode'; expected"),
        ("webhooks.create", "apply then reset", "step not understood"),
        ("webhooks.create", "apply, then", "step not understood"),
        ("webhooks.create", "slow", "step not understood"),
        ("webhooks.create", "200", "step not understood"),
        ("webhooks.create", "late 1, then pass", "true answer cannot come before"),
        ("webhooks.create", "stale 1", "is for reads"),
        ("webhooks.list", "apply, then 500", "is a read and has no effect"),
        ("webhooks.list", "bad item", "for the invoice lists"),
        ("invoices.download_status", "bad item", "for the invoice lists"),
        ("webhooks.create", 500, "a step is text, such as .*, not 500"),
        ("webhooks.create", ["reset"], "a step is text"),
        (
            "webhooks.destroy",
            "pass",
            "unknown operation 'webhooks.destroy'; expected one of",
        ),
    ],
)
def test_script_that_makes_no_sense(operation, step, reason):
    """A step is parsed strictly, and its error lists the valid words."""
    with pytest.raises(ValueError, match=reason):
        Simulator().script(operation, step)


async def test_plan_meets_its_rate_and_kinds():
    """A plan spreads its kinds over the arrivals, and the ledger names each fault."""
    plan = Faults(rate=0.5, kinds=("500", "reset"), phases=("before", "after"))
    async with Simulator(faults=plan) as service, plain_session() as session:
        call = Caller(session, service)
        hook = service.seed_webhook()
        for _ in range(200):
            await seen(call, "PUT", f"/webhooks/{hook.id}", json={})
        faults = [entry.fault for entry in service.ledger.entries if entry.fault]
        assert set(faults) == {"500", "apply, then 500", "reset", "apply, then reset"}
        assert 70 <= len(faults) <= 130
        for entry in service.ledger.entries:
            assert entry.applied == (
                entry.fault is None or entry.fault.startswith("apply")
            )


async def test_plan_repeats_with_the_seed():
    """The same seed and order of arrivals give the same faults; another seed does not."""

    async def run(seed):
        plan = Faults(rate=0.5, hang=0.01)
        # one may be closed just as it is used again
        each_its_own = aiohttp.TCPConnector(force_close=True)
        async with (
            Simulator(seed=seed, faults=plan) as service,
            plain_session(connector=each_its_own) as session,
        ):
            for _ in range(30):
                await seen(Caller(session, service), "POST", "/webhooks", json=HOOK)
            return [entry.fault for entry in service.ledger.entries]

    first = await run(3)
    assert first == await run(3)
    assert first != await run(4)


async def test_plan_that_is_replaced(service, call):
    """Replacing the plan starts and ends an outage, which may affect some operations only."""
    service.faults = Faults(rate=1, kinds=("503",), operations=("webhooks.list",))
    assert (await call("GET", "/webhooks")).status == 503
    assert (await call("GET", "/invoices/egress")).status == 200
    service.faults = Faults.none()
    assert (await call("GET", "/webhooks")).status == 200


def test_plan_from_text():
    """A plan is parsed from a command line."""
    assert Faults.parse("none") == Faults.none() == Faults()
    plan = Faults.parse(
        "rate=0.2,kinds=500+reset,reads=0.1,late=0.4,phases=late,hang=2,operations=webhooks.create"
    )
    assert plan == Faults(
        rate=0.2,
        kinds=("500", "reset"),
        reads=0.1,
        late_up_to=0.4,
        phases=("late",),
        hang=2,
        operations=("webhooks.create",),
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rat=1", "'rat' is not among"),
        ("rate=much", "rate takes a number"),
        ("rate=2", "rate must be a probability"),
        ("rate=0.1,kinds=501", "kinds: 501 is not among"),
        ("phases=during", "phases: during is not among"),
        ("rate=nan", "rate must be a probability, 0 to 1, not nan"),
        ("reads=-0.1", "reads must be a probability"),
        ("late=-1", "late_up_to must be seconds, 0 or more, not -1.0"),
        ("late=nan", "late_up_to must be seconds"),
        ("late=inf", "late_up_to must be seconds"),
        ("hang=-0.5", "hang must be seconds, 0 or more, or None"),
        ("hang=inf", "hang must be seconds"),
        ("hang=nan", "hang must be seconds"),
        ("operations=foo", "operations: foo is not among .*webhooks.create"),
        ("operations=webhooks.list+unknown", "operations: unknown is not among"),
        ("operations=", "operations: nothing is not among"),
    ],
)
def test_plan_text_that_makes_no_sense(text, reason):
    """An invalid plan is rejected when it is made."""
    with pytest.raises(ValueError, match=reason):
        Faults.parse(text)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"rate": "0.5"}, "rate must be a probability, 0 to 1, not '0.5'"),
        ({"rate": None}, "rate must be a probability"),
        ({"late_up_to": "1"}, "late_up_to must be seconds, 0 or more, not '1'"),
        ({"late_up_to": None}, "late_up_to must be seconds"),
        (
            {"duplicate_deliveries": float("nan")},
            "duplicate_deliveries must be a probability",
        ),
        ({"kinds": "500"}, "kinds takes several, such as .*, not one text"),
        ({"operations": "webhooks.create"}, "operations takes several"),
        ({"operations": ()}, "operations: nothing is not among"),
    ],
)
def test_plan_that_makes_no_sense(settings, reason):
    """Values that a text could not express are rejected as well."""
    with pytest.raises(ValueError, match=reason):
        Faults(**settings)


@pytest.mark.parametrize("seconds", [0, 2, 0.05, 1e-7, 1e22, 123456.789])
def test_plan_whose_hang_is_any_number_of_seconds(seconds):
    """The drawn step has the seconds in digits that the parser accepts, however small or large."""
    plan = Faults(rate=1, kinds=("hang",), hang=seconds)
    step = plan.draw(random.Random(1), "webhooks.list", write=False)
    assert (step.end, step.number) == ("hang", seconds)


@pytest.mark.parametrize(
    ("seconds", "header"),
    [("2", "2"), ("0.05", "0.05"), ("1234567", "1234567"), ("20000000", "20000000")],
)
async def test_retry_after_of_any_length(service, call, seconds, header):
    """`Retry-After` has the step's digits."""
    service.script("webhooks.list", f"429 after {seconds}")
    assert (await call("GET", "/webhooks")).headers["Retry-After"] == header


def test_plan_without_kinds():
    """A plan needs kinds to choose from."""
    with pytest.raises(ValueError, match="kinds: nothing is not among"):
        Faults(kinds=())


def test_every_kind_is_a_step():
    """Each kind of the plan is also a valid step."""
    for kind in KINDS:
        assert parse_step(kind).words == kind


async def test_latency_and_places():
    """With one request at once, two requests take twice the time of one."""
    async with (
        Simulator(latency=0.05, at_once=1, clock=service_clock()) as service,
        plain_session() as session,
    ):
        call = Caller(session, service)
        started = service.clock.steady()
        await asyncio.gather(call("GET", "/webhooks"), call("GET", "/webhooks"))
        assert service.clock.steady() - started >= 0.1


async def test_latency_that_changes():
    """Requests that come later take as long as the service is told to take."""
    async with Simulator(clock=service_clock()) as service, plain_session() as session:
        call = Caller(session, service)
        service.latency = 0.5
        started = service.clock.steady()
        await call("GET", "/webhooks")
        slow = service.clock.steady()
        service.latency = 0.0
        await call("GET", "/webhooks")
        assert slow - started >= 0.5
        assert service.clock.steady() - slow < 0.5
        with pytest.raises(ValueError, match="latency must be seconds"):
            service.latency = -1.0
        assert service.latency == 0.0


async def test_ledger_that_is_asked_for_what_has_arrived(service, call):
    """Waiting for an arrival that has happened returns at once; a cancelled waiter is skipped."""
    left = asyncio.create_task(service.arrived("webhooks.list"))
    await asyncio.sleep(0)
    left.cancel()
    stays = asyncio.create_task(service.arrived("webhooks.list"))
    await asyncio.sleep(0)
    await call("GET", "/webhooks")
    await asyncio.wait_for(stays, 30)
    await asyncio.wait_for(service.arrived("webhooks.list"), 30)


async def test_connection_that_is_busy_when_it_should_be_closed(service, call):
    """The next request on it is not interrupted."""
    service.script("webhooks.list", "idle-close 0.05", "slow 0.15")
    for _ in range(2):
        assert (await call("GET", "/webhooks")).status == 200


async def test_service_that_never_began():
    """The end of an idle connection has no effect."""
    service = Simulator()
    await service.__aexit__()
    assert service.arrivals() == 0
