"""`invsvc listen`: deliveries of the embedded service, printed, stored, sent on and replayed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from yarl import URL

from invsvc_async import ConfigurationError, events
from invsvc_async.cli.app import run
from invsvc_async.cli.commands.listen import Listener, listening, replayed
from invsvc_async.events.verify import signature_of
from tests.cli.conftest import child
from tests.support.hostile import endless, once
from tests.support.raw_server import RawServer, obliging

pytestmark = pytest.mark.one_python

SHARED = events.SharedHeader("X-Events-Key", "of the dashboard")
KEY = {SHARED.name: SHARED.value}


BODY = {
    "id": "whd_1",
    "type": "invoice.created",
    "created": 1,
    "livemode": True,
    "data": {"object": {}},
}


@asynccontextmanager
async def taking(take, *, there=None):
    """Run an application in which *take* answers, and *there* elsewhere; give its address."""
    app = web.Application()
    app.router.add_post("/in", take)
    app.router.add_route("*", "/there", there or take)
    async with TestServer(app) as server:
        yield str(server.make_url("/in"))


@asynccontextmanager
async def application(*, fails=0):
    """Run an application that verifies each event, and takes those after the first *fails*."""
    taken, left = [], [fails]

    async def take(request):
        event = events.read(
            await request.read(),
            request.headers,
            secrets=["s3cret"],
            shared_header=SHARED,
        )
        if left[0]:
            left[0] -= 1
            return web.Response(status=500)
        taken.append(event.type)
        return web.Response()

    async with taking(take) as address:
        yield address, taken


def listener_of(tmp_path, forward=None, **others):
    return Listener(
        secrets=("s3cret",),
        shared_header=SHARED,
        store=tmp_path / "events.jsonl",
        forward=forward,
        **others,
    )


def stored_in(tmp_path):
    return [
        json.loads(line)
        for line in (tmp_path / "events.jsonl").read_text().splitlines()
    ]


async def again(listener):
    """Replay the events of its store; return the number of failures."""
    return await replayed(listener, listener.store, listener.store.read_bytes())


def at(listener, **others):
    return listening(
        listener, host="127.0.0.1", port=0, **{"accept_unsigned": False, **others}
    )


async def test_event_that_is_sent_on(service, tmp_path, capsys):
    """Signed and resource events are printed, stored, and verify anew in the application behind."""
    async with application() as (url, taken), at(listener_of(tmp_path, url)) as here:
        resource = await service.deliver("invoice.created", url=here, headers=KEY)
        signed = await service.deliver("sat.invoice.synced", url=here, secret="s3cret")

    told = [line.split("\t")[1:3] for line in capsys.readouterr().out.splitlines()]
    stored = stored_in(tmp_path)
    assert (resource.statuses, signed.statuses) == ([200], [200])
    assert taken == ["invoice.created", "sat.invoice.synced"]
    assert told == [["invoice.created", "v2"], ["sat.invoice.synced", "signed"]]
    assert [each["type"] for each in stored] == taken
    assert SHARED.value not in (tmp_path / "events.jsonl").read_text()


async def test_event_that_is_forged(service, tmp_path, capsys):
    """What is not authentic is neither printed nor stored nor sent on; the refusal is said."""
    async with application() as (url, taken), at(listener_of(tmp_path, url)) as here:
        await service.deliver("invoice.created", url=here)
        await service.deliver("sat.invoice.synced", url=here, secret="another")

    said = capsys.readouterr()
    assert (taken, said.out, (tmp_path / "events.jsonl").exists()) == ([], "", False)
    assert said.err.count("answered 401") == 2


async def test_application_that_fails_at_first(service, tmp_path):
    """A failure behind is answered 500, so that the service sends the event again, and then it is taken."""
    async with (
        application(fails=1) as (url, taken),
        at(listener_of(tmp_path, url)) as here,
    ):
        delivery = await service.deliver("invoice.created", url=here, headers=KEY)

    assert (taken, delivery.statuses) == (["invoice.created"], [500, 200])


async def test_event_that_is_sent_again(service, tmp_path):
    """However often an event with an id is tried, it is stored once; without an id nobody may say that it is the same."""
    async with (
        application(fails=4) as (url, taken),
        at(listener_of(tmp_path, url)) as here,
    ):
        again = await service.deliver("invoice.created", url=here, headers=KEY)
        await service.deliver("invoice.created", url=here, headers=KEY, version="v1")

    stored = [each["id"] for each in stored_in(tmp_path)]
    assert again.statuses == [500] * 4 + [200]
    assert len(taken) == 2
    assert len(stored) == 2
    assert (stored[0] is None, stored[1]) == (False, None)


async def test_ids_of_other_events(tmp_path):
    """An id in another family, or of a test, which anyone can send, is that of another event."""
    listener = listener_of(tmp_path)
    bodies = [
        BODY | {"test": True},
        BODY,
        {"id": "whd_1", "event": "sat.invoice.synced", "created_at": 1, "data": {}},
    ]
    for body in bodies * 2:
        await listener.handle(events.parse(json.dumps(body).encode()))

    stored = stored_in(tmp_path)
    assert [(each["type"], each["test"]) for each in stored] == [
        ("invoice.created", True), ("invoice.created", False), ("sat.invoice.synced", False),
    ]  # fmt: skip


async def test_file_whose_last_line_was_cut_off(tmp_path, capsys):
    """The next event has a line of its own."""
    body = b'{"event":"payment.created","data":{"id":"pay_1"}}'
    (tmp_path / "events.jsonl").write_bytes(b'{"received_at":"2026-05')
    await listener_of(tmp_path).handle(events.parse(body))

    assert await again(listener_of(tmp_path)) == 1
    assert "line 1: not a stored event: it is not JSON" in capsys.readouterr().err
    *_, line = (tmp_path / "events.jsonl").read_text().splitlines()
    assert json.loads(line)["body"] == body.decode()


async def test_application_that_answers_elsewhere(service, tmp_path, capsys):
    """A redirect is not followed, as the service follows none, and is no success."""
    gone = []

    async def away(_):
        raise web.HTTPFound("/there")

    async def there(request):
        gone.append(request.method)
        return web.Response()

    async with taking(away, there=there) as address:
        listener = listener_of(tmp_path, address)
        async with at(listener) as here:
            await service.deliver("sat.invoice.synced", url=here, secret="s3cret")
        assert await again(listener) == 1

    assert gone == []
    assert "answered 302" in capsys.readouterr().err


async def test_file_of_stored_events(service, tmp_path):
    """Bodies hold personal data: the file is for its owner's eyes only, whatever the umask."""
    before = os.umask(0)
    try:
        async with at(listener_of(tmp_path)) as here:
            await service.deliver("invoice.created", url=here, headers=KEY)
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "events.jsonl").stat().st_mode) == 0o600


async def test_test_event_of_the_dashboard(service, tmp_path):
    """A test event is taken without the shared header, and goes on as one, live and replayed."""
    told = []

    async def take(request):
        told.append(
            (request.headers.get("X-Service-Test"), SHARED.name in request.headers)
        )
        return web.Response()

    async with taking(take) as address:
        listener = listener_of(tmp_path, address)
        async with at(listener) as here:
            await service.deliver("invoice.created", url=here, test=True)
        await again(listener)

    assert told == [("true", False)] * 2


async def test_replay_of_stored_events(service, tmp_path, capsys):
    """Stored events are sent again as they came, test events as such; bad lines and failures are counted."""
    store = tmp_path / "events.jsonl"
    async with at(listener_of(tmp_path)) as here:
        await service.deliver("invoice.created", url=here, headers=KEY)
        await service.deliver("invoice_batch.completed", url=here, secret="s3cret")
    with store.open("a") as file:
        file.write("[1]\n")

    async with application() as (url, taken):
        failed = await again(listener_of(tmp_path, url))
    nobody = await again(listener_of(tmp_path, url))

    assert (failed, nobody) == (1, 3)
    assert taken == ["invoice.created", "invoice_batch.completed"]
    assert f"{store}, line 3" in capsys.readouterr().err


GARBLED = {
    "another language": b"SSH-2.0-x\r\n",
    "a status that is none": b"HTTP/1.1 abc\r\n\r\n",
    "a header too long": b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
    "nothing": b"",
}


@pytest.fixture
def stored(tmp_path):
    """Three stored events."""
    lines = [
        json.dumps({"body": json.dumps(BODY | {"id": f"whd_{n}"}), "test": False})
        for n in range(3)
    ]
    (tmp_path / "events.jsonl").write_text("\n".join(lines))
    return tmp_path / "events.jsonl"


@pytest.mark.parametrize("said", GARBLED)
async def test_application_that_answers_no_http(said, stored, tmp_path, capsys):
    """Each event that it was sent counts as failed, and the next one is tried."""
    async with RawServer(once(GARBLED[said])) as application:
        failed = await again(listener_of(tmp_path, str(application.url)))

        assert (failed, len(application.arrivals)) == (3, 3)
    assert capsys.readouterr().err.count("not reachable") == 3


async def test_application_that_answers_byte_by_byte(
    stored, tmp_path, monkeypatch, capsys
):
    """Each event has its time, the whole answer included."""
    monkeypatch.setattr("invsvc_async.cli.commands.listen.FORWARD_TIMEOUT", 0.2)
    async with RawServer(endless(b"HTTP/1.1 200 OK\r\nX: ", b"y", 0.05)) as application:
        async with asyncio.timeout(300):
            failed = await again(listener_of(tmp_path, str(application.url)))

    assert failed == 3
    assert "no answer within 0.2 s" in capsys.readouterr().err


async def test_proxy_of_the_environment(stored, tmp_path, monkeypatch):
    """It sees no event, and no shared header: they are for the application alone."""
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with RawServer(obliging) as proxy, application() as (url, taken):
        monkeypatch.setenv("http_proxy", str(proxy.url.origin()))

        assert await again(listener_of(tmp_path, url)) == 0
        assert (len(taken), proxy.connections) == (3, 0)


async def test_request_that_would_paint_the_terminal(tmp_path, capsys):
    """What a stranger asks for is shown as it came, and moves no cursor."""
    async with at(listener_of(tmp_path)) as here, ClientSession() as session:
        await session.get(URL(f"{here}%1b%5b31m", encoded=True))

    said = capsys.readouterr().err
    assert "answered 405 (refused) to GET /%1b%5b31m" in said
    assert "\x1b" not in said


async def test_listening_without_any_authentication(tmp_path):
    """Nothing is listened for where nothing authenticates events, unless that is said."""
    with pytest.raises(ConfigurationError, match="nothing authenticates"):
        async with at(Listener()):
            pass
    async with at(Listener(), accept_unsigned=True) as here:
        assert here.startswith("http://127.0.0.1:")


def test_command_of_replay(tmp_path, capsys):
    """The command prints stored events, and ends with 1 where a line is none."""
    store = tmp_path / "events.jsonl"
    store.write_text(json.dumps({"body": json.dumps(BODY), "test": False}) + "\n")

    assert run(["listen", "--replay", str(store), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "whd_1"
    store.write_text("{}\n")
    assert run(["listen", "--replay", str(store)]) == 1


def test_command_until_ctrl_c(tmp_path):
    """The command listens, says where, and ends with 0 at Ctrl-C."""
    running = child("listen", "--port", "0", "--shared-header", "X-K=v", cwd=tmp_path)
    said = running.stderr.readline()
    running.send_signal(signal.SIGINT)
    _, rest = running.communicate(timeout=300)

    assert said.startswith("Listening on http://127.0.0.1:")
    assert (running.returncode, rest) == (0, "")


async def test_stored_line_that_is_no_event(tmp_path, capfd):
    """The error shows how it begins; nobody on a command line has its `.raw`."""
    lines = json.dumps({"body": '{"type": "nothing"}'}).encode()
    assert await replayed(listener_of(tmp_path), Path("a file"), lines) == 1
    said = capfd.readouterr().err
    assert """It begins with '{"type": "nothing"}'""" in said
    assert ".raw" not in said


async def test_password_in_the_address_of_the_application(tmp_path, capfd):
    """It is in no error, whether the application is away, answers an error or the address cannot be used."""
    lines = json.dumps({"body": json.dumps(BODY)}).encode()

    async def refuse(_request):
        return web.Response(status=500)

    async with taking(refuse) as address:
        host = address.removeprefix("http://")
        for place in (
            f"u:hush-hush@{host}",
            "u:hush-hush@127.0.0.1:9/in",
            "u:hush-hush@127.0.0.1:x/in",
        ):
            assert (
                await replayed(
                    listener_of(tmp_path, f"http://{place}"), Path("a file"), lines
                )
                == 1
            )

    said = capfd.readouterr().err
    assert said.count("--replay") == 3
    assert "hush-hush" not in said


@pytest.mark.parametrize(
    ("body", "stored"),
    [(b'{"id": 1', {"body": '{"id": 1'}), (b"\xff\xfe", {"body_base64": "//4="})],
)
async def test_authentic_body_that_is_no_event(tmp_path, capsys, body, stored):
    """It is stored and printed, because its sender does not send it again; a replay says what it is."""
    listener = listener_of(tmp_path)
    async with at(listener) as here, ClientSession() as session:
        headers = {
            "Content-Type": "application/json",
            "X-Service-Signature": signature_of(body, b"s3cret"),
        }
        async with session.post(here, data=body, headers=headers) as answer:
            assert answer.status == 202

    [record] = stored_in(tmp_path)
    assert stored.items() <= record.items()
    assert record["unreadable"].startswith("The body is not an event")
    assert capsys.readouterr().out.split("\t")[1:3] == [
        "unreadable",
        f"{len(body)} bytes",
    ]
    assert await again(listener) == 1
    assert "could not be read" in capsys.readouterr().err


async def test_secrets_in_files(service, tmp_path):
    """They need not be on the command line, where others see them in the list of processes."""
    (tmp_path / "secrets").write_text("another\ns3cret\n")
    (tmp_path / "header").write_text(f"{SHARED.name}={SHARED.value}\n")
    running = child(
        "listen", "--port", "0", "--secret-file", "secrets", "--shared-header-file", "header", "--json",
        cwd=tmp_path,
    )  # fmt: skip
    url = (await asyncio.to_thread(running.stderr.readline)).split()[2].rstrip(";")
    resource = await service.deliver("invoice.created", url=url, headers=KEY)
    signed = await service.deliver("sat.invoice.synced", url=url, secret="s3cret")
    running.send_signal(signal.SIGINT)
    await asyncio.to_thread(running.communicate, timeout=60)

    assert (resource.statuses, signed.statuses) == ([200], [200])


def test_secrets_file_that_is_no_text(tmp_path, capsys):
    """Its content is in no error."""
    (tmp_path / "secrets").write_bytes(b"hush\xff")

    assert run(["listen", "--secret-file", str(tmp_path / "secrets")]) == 2
    assert "hush" not in capsys.readouterr().err
