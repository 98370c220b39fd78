"""No credential and no webhook secret in anything the package says, keeps or shows; see also `marked` as a plugin."""

from __future__ import annotations

import asyncio
import pickle
import stat
import time
import traceback
from contextlib import suppress

import pytest

from invsvc_async import (
    ApiKey,
    AuthenticationError,
    BatchStoppedError,
    Client,
    ConflictError,
    InvsvcError,
    NotSentError,
    ReadRetries,
    ReconcilePolicy,
    Timeouts,
    TokenProvider,
    UnreadableResponseError,
)
from invsvc_async.batch import Batch
from invsvc_async.cli.app import run
from invsvc_async.reconcile.json_form import plain_error
from invsvc_async.simulator import Simulator
from invsvc_async.simulator.faults import KINDS
from tests.secrets.known_secrets import shown
from tests.secrets.search_plugin import marking
from tests.support.hostile import once, whole
from tests.support.raw_server import OK, RawServer, obliging, server_tls  # noqa: F401 - a fixture

pytestmark = pytest.mark.untraced

POLICY = ReconcilePolicy(settle_after_error=0.1, settle_after_loss=0.2, deadline=5.0)
TIMES = Timeouts(attempt=0.3, connect=2.0, call=5.0)
HOOK = {"url": "https://me.example/in", "events": ["invoice.created"]}
PHASES = ("{}", "apply, then {}", "late 0.1, then {}")


@pytest.fixture
def marks():
    with marking() as found:
        yield found


def client_of(service, **settings):
    settings = {
        "timeout": TIMES,
        "reconcile": POLICY,
        "reads": ReadRetries(initial=0.01),
        **settings,
    }
    return Client(service.base_url, ApiKey(service.api_key), **settings)


async def each_write(service, client, step):
    """Make each write under *step*, tagged or not, and take it up again where it is open."""
    writes = {
        "webhooks.create": client.webhooks.create(**HOOK, tag=True),
        "webhooks.update": client.webhooks.update(
            service.seed_webhook().id, description=step
        ),
        "webhooks.delete": client.webhooks.delete(service.seed_webhook().id),
        "journeys.update": client.journeys.update(service.seed_journey().id, name=step),
        "sheets.save_mapping": client.sheets.save_mapping({"amount": step}),
        "teams.create": client.teams.create(legal_name=step),
    }
    for operation in writes:
        service.script(operation, step)
    outcomes = await asyncio.gather(*(write.outcome() for write in writes.values()))
    for outcome in outcomes:
        with suppress(InvsvcError):
            outcome.unwrap()


@pytest.mark.parametrize("phase", PHASES, ids=("before", "after", "late"))
async def test_writes_under_every_fault(marks, tmp_path, phase):
    """Whatever becomes of a write, nothing that tells of it holds a secret, and neither does the outbox."""
    reports = []

    async def one(kind):
        step = "pass" if kind == "idle-close" else phase.format(kind)
        path = tmp_path / f"{kind}.db"
        async with Simulator() as service:
            hooks = {"on_attempt": reports.append, "on_decision": reports.append}
            async with client_of(
                service, journal=path, **hooks, on_unsettled=reports.append
            ) as client:
                await each_write(service, client, step)
                assert stat.S_IMODE(path.stat().st_mode) == 0o600

    await asyncio.gather(*map(one, KINDS))

    assert reports
    assert marks.secrets
    assert marks.hits() == []
    assert marks.files(tmp_path) == []


@pytest.mark.parametrize(
    "step",
    [
        "401 raw",
        "400",
        "403",
        "429 credits",
        "own 500",
        "gateway 502",
        "reset",
        "hang",
        "garbage",
        "html",
    ],
)
async def test_reads_that_fail(marks, step):
    """An error, its traceback and its pickle do not hold the token."""
    async with (
        Simulator() as service,
        client_of(service, reads=ReadRetries(attempts=1)) as client,
    ):
        service.script("users.get", step)
        with pytest.raises(InvsvcError) as raised:
            await client.users.get("usr_1")
        again = pickle.loads(pickle.dumps(raised.value))  # noqa: S301 - our own

        assert marks.hits() == []
        assert not [text for text in shown(again) if marks.finds(text)]


async def test_cancelled_write(marks):
    """What a cancelled call leaves in its exception, its task and its intent holds no token."""
    async with Simulator() as service, client_of(service, timeout=Timeouts()) as client:
        service.script("webhooks.create", "apply, then hang")
        task = asyncio.create_task(client.webhooks.create(**HOOK, tag=True).outcome())
        await service.arrived("webhooks.create")
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as raised:
            await task
        [intent] = client.unsettled
        await client.settle(intent)

        assert not [
            text
            for text in (repr(task), repr(raised.value), *shown(intent))
            if marks.finds(text)
        ]
    assert marks.hits() == []


async def test_batch_with_its_report(marks, tmp_path, capfd):
    """Neither journal nor report of a batch that creates webhooks holds a secret: they go to `on_secret` alone."""
    path, taken = tmp_path / "run.db", []
    async with Simulator() as service, client_of(service) as client:
        service.script("webhooks.create", "pass", "apply, then reset", "500")
        async with Batch.open(
            path, client, on_secret=lambda _key, hook: taken.append(hook.secret)
        ) as batch:
            writes = [
                client.webhooks.create(**{**HOOK, "url": f"https://me.example/{n}"})
                for n in range(8)
            ]
            results = [result async for result in batch.run(writes)]
            summary = await batch.summary()
        code = await asyncio.to_thread(
            run, ["batch", "report", str(path), "--html", str(tmp_path / "r.html")]
        )

    out, err = capfd.readouterr()
    assert (len(results), code) == (8, 0)
    assert any(taken)
    assert all(secret in marks.secrets for secret in taken if secret)
    assert not [
        text
        for text in (out, err, repr(results), repr(summary), repr(batch))
        if marks.finds(text)
    ]
    assert (marks.hits(), marks.files(tmp_path)) == ([], [])
    assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.glob("run.db*")} == {
        0o600
    }


@pytest.mark.parametrize(
    "words",
    [
        ("list", "webhooks.list"),
        ("get", "users.get", "usr_1"),
        ("get", "users.get", "usr_none"),
        ("write", "webhooks.delete", "wh_none"),
        ("doctor",),
        ("no-such-command",),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("debug", [(), ("--debug",)], ids=["plain", "debug"])
async def test_command_line(marks, words, debug, tmp_path, monkeypatch, capfd):
    """Nothing that a command prints, logs or leaves in its folder holds the token."""
    monkeypatch.chdir(tmp_path)
    async with Simulator() as service:
        monkeypatch.setenv("INVSVC_BASE_URL", service.base_url)
        monkeypatch.setenv("INVSVC_API_KEY", service.api_key)
        told = ""
        try:
            await asyncio.to_thread(run, [*debug, *words])
        except InvsvcError as error:  # --debug lets it out
            told = "".join(traceback.format_exception(error))

    out, err = capfd.readouterr()
    assert out or err or told
    assert not [text for text in (out, err, told) if marks.finds(text)]
    assert marks.hits() == []
    assert not [
        each
        for each in tmp_path.rglob("*")
        if each.is_file() and marks.finds(each.read_bytes())
    ]


async def test_source_that_is_slow_in_debug_mode(marks, caplog):
    """The debug mode of asyncio tells of each task that held the loop, with its result: that is not the token."""
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 0.01
    token = marks.issue("short-token-1")  # asyncio cuts longer texts

    async def source():
        time.sleep(0.05)  # noqa: ASYNC251 # sleeps: as a source that asks without awaiting does
        return token

    assert await TokenProvider(source, kind="api_key").header() == f"Bearer {token}"
    await asyncio.sleep(0)
    assert [each for each in caplog.messages if "_ask_source" in each]
    assert not [each for each in caplog.messages if marks.finds(each)]
    assert marks.hits() == []


async def test_refused_token_is_not_named(marks):
    """A token that the service refuses stands in no word of the error."""
    async with (
        Simulator() as service,
        Client(service.base_url, ApiKey(marks.issue("not.a.token0"))) as client,
    ):
        with pytest.raises(AuthenticationError) as raised:
            await client.users.get("usr_1")

    assert not [text for text in shown(raised.value) if marks.finds(text)]


@pytest.mark.parametrize(
    "details",
    [
        {"hook": {"secret": "whsec_x", "id": "wh_1"}},
        [{"secret": "whsec_x", "id": "wh_1"}],
    ],
)
def test_error_whose_details_have_a_secret(details):
    """Its words have the other members alone, also in its plain form."""
    error = ConflictError(status=409, details=details)
    assert "wh_1" in str(error)
    assert "whsec_x" not in f"{error} {plain_error(error)['text']}"


ECHOES = {
    "its own envelope": (
        "401 No",
        b'{"success":false,"error":{"code":"bad_token","message":"refused: %s"}}',
    ),
    "the layer before it": (
        "403 No",
        b'{"message":"%s is not known","details":["%s"]}',
    ),
    "escaped": ("401 No", b'{"message":"a %s"}'),
    "a failure": (
        "500 Oops",
        b'{"success":false,"error":{"code":"c","message":"with %s"}}',
    ),
    "a page": ("502 Bad", b"<html>Authorization: Bearer %s</html>"),
    "no envelope": ("200 OK", b"you said %s"),
}


BACK = whole(
    b'{"success":false,"error":{"code":"resource_not_found","message":"no"}}',
    status="404 No",
)
REFUSALS = ("the layer before it", "escaped")  # of the credential, not of one write


def repeating(answer):
    """Make a script that answers with *answer*, and with 200 once a paused batch has asked whether it is back."""
    asked = []

    async def script(peer):
        while arrival := await peer.arrival():
            if is_probe := b"/webhooks/none" in arrival.head:
                asked.append(arrival)
            await peer.send(BACK if is_probe else OK if asked else answer)
            await peer.end("fin")

    return script


@pytest.mark.parametrize("how", ECHOES)
async def test_service_that_repeats_the_token(marks, tmp_path, how):
    """It is taken out of what an error holds, whole or in a journal, and of the headers of its answer."""
    token = "head-of-it/body-of-it.signature-of-it"
    status, body = ECHOES[how]
    said = (token.replace("/", r"\/") if how == "escaped" else token).encode()
    answer = whole(
        body.replace(b"%s", said), f"WWW-Authenticate: Bearer {token}", status=status
    )
    async with RawServer(
        once(answer) if how in REFUSALS else repeating(answer)
    ) as server:
        base = str(server.url).removesuffix("/things/1")
        policy = ReconcilePolicy(
            settle_after_error=0.01, settle_after_loss=0.01, deadline=0.2
        )
        async with Client(
            base, ApiKey(token), reads=ReadRetries(attempts=1), reconcile=policy
        ) as client:
            with pytest.raises(InvsvcError) as raised:
                await client.users.get("usr_1")
            with suppress(InvsvcError):
                await client.download("/things/1").read()
            results, stopped = [], None
            async with Batch.open(tmp_path / "run.db", client) as batch:
                try:
                    results = [
                        each
                        async for each in batch.run(
                            [client.webhooks.delete("wh_1").keyed("k")]
                        )
                    ]
                except BatchStoppedError as error:  # the credential is refused
                    stopped = error

    assert "***" in repr(raised.value.raw)
    assert (len(results), stopped is None) == (
        (0, False) if how in REFUSALS else (1, True)
    )
    assert stopped is None or not [text for text in shown(stopped) if marks.finds(text)]
    assert (marks.hits(), marks.files(tmp_path)) == ([], [])


async def test_unreadable_answer_with_a_secret(marks):
    """It says what is wrong, and neither it nor its cause holds a frame that the body is in."""
    secret = marks.issue("whsec_0123456789")
    answer = whole(b'{"success":true,"data":{"secret":"%s"}' % secret.encode())
    async with RawServer(once(answer)) as server:
        base = str(server.url).removesuffix("/things/1")
        async with Client(
            base, ApiKey("key-of-nobody"), reads=ReadRetries(attempts=1)
        ) as client:
            with pytest.raises(UnreadableResponseError) as raised:
                await client.users.get("usr_1")

    assert raised.value.__cause__ is not None
    assert raised.value.__cause__.__traceback__ is None
    own = [
        frame
        for frame, _ in traceback.walk_tb(raised.tb)
        if "invsvc_async" in frame.f_code.co_filename
    ]
    assert own
    assert not [frame for frame in own if marks.finds(repr(frame.f_locals))]
    assert marks.hits() == []


async def test_short_token_that_is_part_of_an_answer():
    """What is not a token of any service stays where it is: it could be a word."""
    async with RawServer(once(whole(b'{"message":"keys"}', status="401 No"))) as server:
        base = str(server.url).removesuffix("/things/1")
        async with Client(base, ApiKey("key")) as client:
            with pytest.raises(AuthenticationError) as raised:
                await client.users.get("usr_1")

    assert raised.value.message == "keys"


async def test_certificate_that_nobody_vouches_for(server_tls):  # noqa: F811 - the fixture
    """By default nothing is sent to a server whose certificate cannot be verified."""
    async with RawServer(obliging, context=server_tls) as server:
        base = str(server.url).removesuffix("/things/1")
        async with Client(base, ApiKey("k"), reads=ReadRetries(attempts=1)) as client:
            with pytest.raises(NotSentError, match=r"(?i)certificate"):
                await client.users.get("usr_1")

        assert server.arrivals == []


@pytest.mark.parametrize("trust_env", [False, True])
async def test_proxy_of_the_environment(monkeypatch, trust_env):
    """A proxy of the environment sees the client's traffic only where it was asked for."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name.upper(), raising=False)
    async with Simulator() as service, RawServer(obliging) as proxy:
        monkeypatch.setenv("http_proxy", str(proxy.url.origin()))
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        async with client_of(
            service, trust_env=trust_env, reads=ReadRetries(attempts=1)
        ) as client:
            with suppress(InvsvcError):
                await client.users.get("usr_1")

        assert bool(proxy.arrivals) is trust_env
