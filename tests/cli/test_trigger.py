"""`invsvc trigger` and `invsvc serve --deliver-to`: events sent to a receiver on a real socket."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import threading
from collections import Counter
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from invsvc_async import Portal, events
from invsvc_async.simulator.validate import EVENTS
from tests.cli.conftest import ENVIRONMENT, child

pytestmark = pytest.mark.one_python

SECRET, SHARED = (
    "whsec_of_the_trigger",
    events.SharedHeader("X-Events-Key", "of the dashboard"),
)


class Behind:
    """What a receiver in a thread has taken, as another program would."""

    def __init__(self):
        self.taken, self.tests, self.receipts, self.url = [], [], [], ""
        self.fails = 0
        self.arrived = threading.Condition()

    @asynccontextmanager
    async def running(self):
        receiver = events.Receiver(secrets=SECRET, shared_header=SHARED)
        receiver.on("*")(self._take)
        receiver.on_test(self._take_test)

        async def respond(request):
            response = await receiver.aiohttp_handler(request)
            self.receipts.append(response.status)
            return response

        app = web.Application()
        app.router.add_post("/in", respond)
        async with receiver, TestServer(app) as server:
            self.url = str(server.make_url("/in"))
            yield self

    async def _take(self, event):
        with self.arrived:
            self.arrived.notify_all()
            if self.fails:
                self.fails -= 1
                raise RuntimeError
            self.taken.append(event)

    async def _take_test(self, event):
        self.tests.append(event)


@pytest.fixture
def behind(monkeypatch):
    monkeypatch.delenv("INVSVC_SHARED_HEADER", raising=False)
    monkeypatch.delenv("INVSVC_WEBHOOK_SECRET", raising=False)
    with Portal(Behind().running) as portal:  # it enters what it is given
        yield portal.client


@pytest.fixture
def trigger(offline, behind, monkeypatch):
    """Run `invsvc trigger` with the secrets of the receiver in the environment."""
    monkeypatch.setenv("INVSVC_WEBHOOK_SECRET", SECRET)
    monkeypatch.setenv("INVSVC_SHARED_HEADER", f"{SHARED.name}={SHARED.value}")
    return lambda *arguments: offline("trigger", *arguments, "--to", behind.url)


@pytest.mark.parametrize("version", ["v1", "v1.1", "v2"])
def test_each_type_in_each_version(trigger, behind, version):
    """Every type arrives authentic and well formed."""
    ran = trigger("all", "--version", version, "--json")
    assert (ran.code, ran.err) == (0, "")
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert [line["answers"] for line in lines] == [[200]] * len(EVENTS)
    assert [event.type for event in behind.taken] == list(EVENTS)
    assert [event.raw.decode() for event in behind.taken] == [
        line["body"] for line in lines
    ]
    versions = {
        event.version
        for event in behind.taken
        if isinstance(event, events.ResourceEvent)
    }
    assert versions == {version}


def test_values_that_are_set(trigger, behind):
    """Values are JSON, or else text, and the signature is over the changed body."""
    ran = trigger(
        "sat.invoice.synced", "--set", "data.total=12345678901.25", "--set", "data.issuer.name=Señal S.A.",
        "--set", 'data.uuid="U-1"',
    )  # fmt: skip
    assert (ran.code, ran.out) == (0, "sat.invoice.synced\t200\n")
    (event,) = behind.taken
    assert (str(event.data.total), event.data.issuer.name, event.data.uuid) == (
        "12345678901.25",
        "Señal S.A.",
        "U-1",
    )


@pytest.mark.no_secret_scan  # it stores secrets in files
def test_signed_resource_event(offline, behind, monkeypatch, tmp_path):
    """With --signed the signature authenticates it, and a file may hold the secret."""
    (tmp_path / "secret").write_text(SECRET + "\n")
    (tmp_path / "header").write_text(f"{SHARED.name}={SHARED.value}\n")
    words = ("trigger", "invoice.created", "--to", behind.url)
    assert offline(*words).code == 1
    assert offline(*words, "--secret-file", str(tmp_path / "secret")).code == 1
    assert (
        offline(*words, "--secret-file", str(tmp_path / "secret"), "--signed").code == 0
    )
    assert offline(*words, "--shared-header-file", str(tmp_path / "header")).code == 0
    assert behind.receipts == [401, 401, 200, 200]
    assert offline(*words, "--signed").code == 2


def test_secret_from_standard_input(offline, behind, monkeypatch):
    """A dash is standard input, which is read once, for either file; what is not text is not shown."""
    words = ("trigger", "invoice.created", "--to", behind.url)
    for text, *options in (
        (SECRET.encode(), "--signed", "--secret-file", "-"),
        (
            f"{SHARED.name}={SHARED.value}\n".encode(),
            "--shared-header-file",
            "-",
            "--count",
            "3",
        ),
    ):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
        assert offline(*words, *options).code == 0
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"whsec_\xff")))
    ran = offline(*words, "--secret-file", "-")

    assert behind.receipts == [200] * 4
    assert (ran.code, "not text" in ran.err, "whsec" in ran.err) == (2, True, False)


def test_copies_in_random_order(trigger, behind):
    """Copies have the body of the first, and each event is handled once."""
    ran = trigger(
        "customer.created", "--count", "8", "--duplicates", "2", "--reorder", "--json"
    )
    bodies = [
        json.loads(json.loads(line)["body"])["id"] for line in ran.out.splitlines()
    ]
    assert set(Counter(bodies).values()) == {3}
    assert [bodies[number] == bodies[number - 1] for number in range(1, 24)].count(
        True
    ) < 12
    assert len(behind.taken) == 8
    assert len(behind.receipts) == 24


def test_retries_of_the_service(trigger, behind):
    """A resource event that is answered 500 comes again if asked for; a signed one never does."""
    behind.fails = 2
    ran = trigger("payment.created", "--retries", "--backoff", "0.01")
    assert (ran.code, ran.out) == (0, "payment.created\t500, 500, 200\n")
    behind.fails = 1
    ran = trigger("payment.created")
    assert (ran.code, ran.out) == (1, "payment.created\t500\n")
    assert "1 of 1 deliveries were not accepted" in ran.err


def test_seed_of_the_ids(trigger, behind):
    """Each call sends new events, unless the seed is the same."""
    for words in ([], [], ["--seed", "3"], ["--seed", "3"]):
        assert trigger("invoice.created", *words).code == 0
    assert len({event.id for event in behind.taken}) == len(behind.taken) == 3


def test_types_with_one_seed(trigger, behind):
    """Events of two types with one seed are about one invoice, and have ids of their own."""
    for type_ in ("invoice.created", "invoice.canceled"):
        assert trigger(type_, "--seed", "3").code == 0
    created, canceled = behind.taken
    assert created.id != canceled.id
    assert created.data.uuid == canceled.data.uuid


@pytest.mark.parametrize("version", ["v1", "v1.1", "v2"])
def test_type_of_copies(trigger, version):
    """Each copy is printed with the type of its event, also one in a wrapper."""
    ran = trigger("invoice.created", "--version", version, "--duplicates", "1")
    assert (ran.code, ran.out) == (0, "invoice.created\t200\n" * 2)


def test_nothing_authenticates(offline, behind, monkeypatch):
    """If deliveries are refused because no secret or header is set, the command says which to set."""
    words = ("trigger", "all", "--to", behind.url)
    ran = offline(*words)
    assert ran.code == 1
    assert "INVSVC_WEBHOOK_SECRET" in ran.err
    assert "INVSVC_SHARED_HEADER" in ran.err

    monkeypatch.setenv("INVSVC_SHARED_HEADER", f"{SHARED.name}={SHARED.value}")
    ran = offline(*words)
    assert "2 of 21" in ran.err
    assert "INVSVC_WEBHOOK_SECRET" in ran.err
    assert "INVSVC_SHARED_HEADER" not in ran.err

    monkeypatch.setenv("INVSVC_SHARED_HEADER", f"{SHARED.name}=another")
    ran = offline("trigger", "invoice.created", "--to", behind.url)
    assert "The receiver's log says why" in ran.err


def test_test_event(trigger, behind):
    """It reaches the handler of tests only."""
    assert trigger("invoice.created", "--test").code == 0
    assert (len(behind.tests), behind.taken) == (1, [])


@pytest.mark.parametrize(
    "words",
    [
        ["no.such.type"], ["invoice.created", "--set", "data"], ["invoice.created", "--version", "v3"],
        ["invoice.created", "--set", "type.x=1"],
        ["invoice.created", "--set", f"data.x={'[' * 300}{']' * 300}"], ["invoice.created", "--count", "0"],
    ],
)  # fmt: skip
def test_words_that_make_no_sense(trigger, behind, words):
    """Nothing is sent."""
    assert trigger(*words).code == 2
    assert behind.receipts == []


@pytest.mark.parametrize("header", ["X-Key", "X-Key=", "=value"])
def test_shared_header_that_is_incomplete(trigger, behind, here, header):
    """It is refused, and not shown."""
    (here / "header.txt").write_text(header)
    ran = trigger("invoice.created", "--shared-header-file", "header.txt")
    assert (ran.code, header in ran.err) == (2, False)
    assert "must be NAME=VALUE" in ran.err
    assert behind.receipts == []


def test_receiver_without_a_host(offline):
    """It is a usage error."""
    ran = offline("trigger", "invoice.created", "--to", "http:///in")
    assert (ran.code, "must be an http(s) URL" in ran.err) == (2, True)


def test_receiver_that_is_away(offline):
    """The failure is told."""
    ran = offline("trigger", "invoice.created", "--to", "http://127.0.0.1:1/in")
    assert (ran.code, "Cannot connect" in ran.out) == (1, True)
    assert (
        "nothing answers at 127.0.0.1:1/in. Start the receiver, or correct --to"
        in ran.err
    )
    ran = offline(
        "trigger", "invoice.created", "--to", "http://u:hush-hush@127.0.0.1:1/in"
    )
    assert "hush-hush" not in ran.out + ran.err
    ran = offline(
        "trigger", "invoice.created", "--to", "http://u:hush-hush@127.0.0.1:x/in"
    )
    assert (ran.code, "hush-hush" in ran.out + ran.err) == (2, False)
    assert offline("trigger", "invoice.created", "--to", "ftp://x").code == 2


@pytest.mark.parametrize(
    "words",
    [
        ["trigger", "invoice.created", "--to"], ["listen", "--replay", "events.jsonl", "--forward"],
        ["serve", "--deliver-to"],
    ],
)  # fmt: skip
def test_plain_http_to_another_machine(offline, behind, here, monkeypatch, words):
    """Secrets and events leave this machine over plain HTTP only if that is allowed."""
    # serve would wait for its end
    monkeypatch.setattr(asyncio.Event, "wait", pytest.fail)
    monkeypatch.setenv("INVSVC_SHARED_HEADER", f"{SHARED.name}={SHARED.value}")
    body = {
        "id": "whd_1",
        "type": "invoice.created",
        "created": 1,
        "livemode": True,
        "data": {"object": {}},
    }
    (here / "events.jsonl").write_text(json.dumps({"body": json.dumps(body)}))
    elsewhere = behind.url.replace("127.0.0.1", "0.0.0.0")  # noqa: S104 - it reaches this machine

    refused = offline(*words, elsewhere)

    assert (refused.code, "--allow-insecure-http" in refused.err, behind.receipts) == (
        2,
        True,
        [],
    )
    assert SHARED.value not in refused.out + refused.err
    if words[0] != "serve":
        assert offline(*words, elsewhere, "--allow-insecure-http").code == 0
        assert behind.receipts == [200]


@pytest.mark.no_secret_scan  # the service prints its keys
def test_serve_that_delivers(behind):
    """The service delivers events of all types, duplicated and reordered, which are handled once each."""
    environment = {
        **ENVIRONMENT, "INVSVC_WEBHOOK_SECRET": SECRET, "INVSVC_SHARED_HEADER": f"{SHARED.name}={SHARED.value}",
    }  # fmt: skip
    serving_process = child(
        "serve", "--json", "--deliver-to", behind.url, "--deliver-every", "0.002",
        "--faults", "duplicate_deliveries=0.5,reorder_deliveries=0.5", env=environment,
    )  # fmt: skip
    with behind.arrived:
        assert behind.arrived.wait_for(
            lambda: {one.type for one in behind.taken} == set(EVENTS), 300
        )
    serving_process.send_signal(signal.SIGINT)
    _, errors = serving_process.communicate(timeout=300)
    assert (serving_process.returncode, errors) == (0, "")
    assert set(behind.receipts) == {200}
    assert max(Counter(event.dedupe_key for event in behind.taken).values()) == 1
    assert len(behind.receipts) > len(behind.taken)


def test_serve_that_delivers_without_authentication(behind):
    """It says which settings are missing, because the receiver will refuse the deliveries."""
    serving_process = child(
        "serve", "--json", "--deliver-to", behind.url,
        env={**ENVIRONMENT, "INVSVC_SHARED_HEADER": "X-Events-Key=v"},
    )  # fmt: skip
    serving_process.stdout.readline()
    serving_process.send_signal(signal.SIGINT)
    _, line = serving_process.communicate(timeout=300)

    assert "INVSVC_WEBHOOK_SECRET" in line
    assert "INVSVC_SHARED_HEADER" not in line


def test_what_listen_prints_is_replayed(trigger, behind, offline, here):
    """`listen --print-json` prints what `--replay` reads."""
    listening = child(
        "listen", "--port", "0", "--print-json",
        env={**ENVIRONMENT, "INVSVC_WEBHOOK_SECRET": SECRET,
             "INVSVC_SHARED_HEADER": f"{SHARED.name}={SHARED.value}", "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    url = listening.stderr.readline().split()[2].rstrip(";")
    assert offline("trigger", "all", "--to", url).code == 0
    listening.send_signal(signal.SIGINT)
    printed, _ = listening.communicate(timeout=300)
    (here / "events.jsonl").write_text(printed)

    ran = offline("listen", "--replay", "events.jsonl", "--forward", behind.url)

    assert ran.code == 0
    assert [event.type for event in behind.taken] == list(EVENTS)
