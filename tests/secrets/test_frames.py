"""No frame of a traceback holds a secret in its local variables, and no message quotes one."""

from __future__ import annotations

import asyncio
import traceback
from functools import partial

import asyncpg
import pytest

from invsvc_async import (
    ApiKey,
    CallOptions,
    Client,
    ConfigurationError,
    InvsvcError,
    JournalError,
    OAuthToken,
    ReadRetries,
    TokenProvider,
    events,
)
from invsvc_async.batch import Batch
from invsvc_async.events.stores.postgres import PostgresStore
from invsvc_async.outbox import Outbox
from invsvc_async.simulator import Simulator
from invsvc_async.storage.postgres_pool import Pool
from tests.support.database import database
from tests.support.database_proxy import database_proxy
from tests.support.inside import journal_of
from tests.support.waiting import forever

pytestmark = pytest.mark.untraced

SECRET = "hush-hush-0123456789"
URL = "http://127.0.0.1:9/v2"
BODY = b'{"type":"sat.sync.completed","id":"evt_1"}'


def shown(error: BaseException) -> str:
    """Return all that a tool which records local variables would show of *error*, and of each chained one."""
    told = traceback.TracebackException.from_exception(error, capture_locals=True)
    return "\n".join(_texts(told, {id(told)}))


def _texts(told, seen):
    yield from told.format_exception_only()
    for frame in told.stack:
        if frame.filename != __file__:  # the locals of a caller are its own
            yield f"{frame.filename}:{frame.lineno} {frame.name} {frame.locals}"
    for chained in (told.__cause__, told.__context__, *(told.exceptions or ())):
        if chained is not None and id(chained) not in seen:
            seen.add(id(chained))
            yield from _texts(chained, seen)


def client(*given, **settings):
    return Client(*(given or (URL, ApiKey("a-token"))), **settings)


HEADERS = {"X-Shared": SECRET}
MISTAKES = {
    "ApiKey, line break": partial(ApiKey, f"{SECRET}\nx"),
    "ApiKey, Bearer": partial(ApiKey, f"Bearer {SECRET}"),
    "OAuthToken, bytes": partial(OAuthToken, SECRET.encode()),
    "Client, text as credential": partial(client, URL, SECRET),
    "Client, swapped": partial(client, SECRET, URL),
    "Client, password in the URL": partial(client, f"https://u:{SECRET}@host.example:x/v2", ApiKey("a-token")),
    "Client, proxy": partial(client, proxy=f"socks5://u:{SECRET}@127.0.0.1:1"),
    "Client, proxy, another mistake": partial(client, proxy=f"http://u:{SECRET}@127.0.0.1:1", timeout=3),
    "Client, proxy and trust_env": partial(client, proxy=f"http://u:{SECRET}@127.0.0.1:1", trust_env=True),
    "Client, unknown setting": partial(client, headers={"X-Mine": SECRET}, heders=1),
    "Client, headers": partial(client, headers={"X-Mine": f"{SECRET}\n"}),
    "Client, headers swapped": partial(client, headers={f"{SECRET} x": "X-Mine"}),
    "Client, headers not texts": partial(client, headers={"X-Mine": SECRET.encode()}),
    "Client, headers, another mistake": partial(client, headers={"X-Mine": SECRET}, team="a/b"),
    "Client, journal": partial(client, journal=f"mysql://u:{SECRET}@127.0.0.1/db"),
    "Client.from_env": partial(Client.from_env, headers={"X-Mine": SECRET}, base_url="nothing"),
    "PostgresStore": partial(PostgresStore, f"postgresql://u:{SECRET}@127.0.0.1/db", table="A"),
    "PostgresStore, swapped": partial(PostgresStore, "table", table=f"postgresql://u:{SECRET}@127.0.0.1/db"),
    "Batch.open": lambda: Batch.open(f"mysql://u:{SECRET}@127.0.0.1/db", client()),
    "Outbox.open": lambda: Outbox.open(f"mysql://u:{SECRET}@127.0.0.1/db", client()),
    "CallOptions, headers": partial(CallOptions, headers={"X-Mine": f"{SECRET}\n"}),
    "CallOptions, headers that may be secret": partial(CallOptions, headers={"X-Token": SECRET}),
    "CallOptions, timeout": partial(CallOptions, headers={"X-Mine": SECRET}, timeout=-1),
    "SharedHeader, value": partial(events.SharedHeader, "X-Shared", f"{SECRET}\n"),
    "SharedHeader, swapped": partial(events.SharedHeader, f"{SECRET} x", "X-Shared"),
    "SharedHeader, swapped, value": partial(events.SharedHeader, SECRET, "X-Shared\n"),
    "SharedHeader, label": partial(events.SharedHeader, "X-Shared", SECRET, label=""),
    "Secret": partial(events.Secret, f"{SECRET}\n"),
    "Receiver, secrets": partial(events.Receiver, secrets=[SECRET, 3]),
    "Receiver, shared header": partial(events.Receiver, secrets=SECRET, shared_header=("X-Shared", SECRET)),
    "Receiver, another mistake": partial(events.Receiver, secrets=SECRET, accept_unsigned="no"),
    "events.read, headers": partial(events.read, BODY, HEADERS, secrets=SECRET),
    "events.read, no event": partial(
        events.read, b"[]", HEADERS, shared_header=events.SharedHeader("X-Shared", SECRET)
    ),
    "events.read, signature": partial(
        events.read, BODY, {**HEADERS, "X-Service-Signature": "sha256=0"}, secrets=SECRET
    ),
    "events.verify, headers": partial(events.verify, BODY, HEADERS, SECRET),
    "events.verify, signature": partial(events.verify, BODY, {**HEADERS, "X-Service-Signature": "s"}, SECRET),
    "events.verify, secrets": partial(events.verify, BODY, {"X-Service-Signature": "s"}, [SECRET, 3]),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_mistake_beside_a_secret(mistake):
    """The error says what is wrong, and shows the secret neither in its words nor in a frame."""
    with pytest.raises((InvsvcError, TypeError)) as raised:
        mistake()

    assert str(raised.value)
    assert SECRET not in shown(raised.value)


@pytest.mark.parametrize("variable", ["INVSVC_API_KEY", "INVSVC_PERSON_TOKEN"])
def test_mistake_in_the_environment(variable, monkeypatch):
    """A token of the environment is in no frame either."""
    monkeypatch.setenv("INVSVC_BASE_URL", URL)
    monkeypatch.setenv(variable, f"{SECRET} x")
    with pytest.raises(InvsvcError) as raised:
        Client.from_env()

    assert SECRET not in shown(raised.value)


async def test_proxy_of_the_environment(monkeypatch):
    """The password of a proxy that cannot work is in no frame of the call that needs it."""
    monkeypatch.setenv("http_proxy", f"socks5://u:{SECRET}@127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    async with client(
        "http://127.0.0.2:9/v2", ApiKey("a-token"), trust_env=True
    ) as calling:
        with pytest.raises(InvsvcError, match="proxy") as raised:
            await calling.users.get("usr_1")

    assert SECRET not in shown(raised.value)


@pytest.mark.parametrize("step", ["401 raw", "400", "reset", "hang", "garbage"])
async def test_call_that_fails(step):
    """The token and the headers of a client are in no frame of a call that fails."""
    async with Simulator() as service:
        service.script("users.get", step)
        settings = {"headers": {"X-Mine": SECRET}, "reads": ReadRetries(attempts=1)}
        async with Client(
            service.base_url, ApiKey(service.api_key), **settings
        ) as calling:
            with pytest.raises(InvsvcError) as raised:
                await calling.users.get("usr_1", options=CallOptions(timeout=0.3))

        told = shown(raised.value)
        assert service.api_key not in told
        assert SECRET not in told


async def test_source_of_tokens_that_fails():
    """The token that was refused is in no frame."""

    async def source():
        return f"{SECRET} x"

    with pytest.raises(InvsvcError) as raised:
        await TokenProvider(source, kind="api_key").header()

    assert SECRET not in shown(raised.value)


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://nobody:{SECRET}@127.0.0.1:x/db",
        f"postgresql://nobody:{SECRET}@127.0.0.1:9/db",
        f"postgresql://nobody:{SECRET}@127.0.0.1:9/db?sslmode=nonsense",
    ],
)
async def test_address_of_a_database(address):
    """The password in the address of a database that is away is in no frame, those of asyncpg included."""
    with pytest.raises(JournalError) as raised:
        await Pool(address, "journal", retry=False).connect(nothing)

    assert SECRET not in shown(raised.value)


async def test_login_that_a_database_refuses():
    """The password is in no frame; the server's words are in the error."""
    address = database().address.replace("//postgres:@", f"//nobody:{SECRET}@")
    with pytest.raises(JournalError, match="nobody") as raised:
        await Pool(address, "journal").connect(nothing)

    assert SECRET in address
    assert SECRET not in shown(raised.value)


async def test_database_that_goes_away():
    """A connection that is made later leaves the password in no frame either."""
    pool = Pool(f"postgresql://nobody:{SECRET}@127.0.0.1:9/db", "journal", retry=False)
    pool._pool = asyncpg.create_pool(pool._address, min_size=0, timeout=1.0)
    pool._loop = asyncio.get_running_loop()
    await pool._pool
    with pytest.raises(JournalError, match="away") as raised:
        await pool.fetch("SELECT 1")
    pool.give_up()

    assert SECRET not in shown(raised.value)


async def nothing(_connection):
    """Prepare nothing."""


async def test_delivery_that_is_refused():
    """The error of a receipt, which an application may log, has no frame with the headers."""
    for secrets, body in ((SECRET, BODY), (SECRET, b"[]"), ("other", BODY)):
        shared = events.SharedHeader("X-Shared", SECRET)
        receiver = events.Receiver(secrets=secrets, shared_header=shared)
        receipt = await receiver.receive(
            body,
            {**HEADERS, "X-Service-Signature": "s"} if secrets == "other" else HEADERS,
        )

        assert receipt.error is not None
        assert SECRET not in shown(receipt.error)


def test_token_of_a_mounted_file():
    """The line break at the end of a file is not part of the token."""
    assert ApiKey("a.b.c\n").fingerprint("k") == ApiKey("a.b.c").fingerprint("k")
    for blank in ("", " \n"):
        with pytest.raises(ConfigurationError, match="not empty"):
            ApiKey(blank)


def test_search_is_not_blind():
    """A secret in a local variable is found, in a chained error as well."""
    namespace = {}
    source = f"def failing():\n    held = {SECRET!r}\n    raise ValueError(len(held))\n"
    exec(compile(source, "elsewhere.py", "exec"), namespace)  # noqa: S102 - a frame of another file
    try:
        namespace["failing"]()
    except ValueError as error:
        with pytest.raises(RuntimeError) as raised:
            raise RuntimeError from error

    assert SECRET in shown(raised.value)


def _receiver_whose_vault(vault, **settings):
    return events.Receiver(
        secrets=vault, shared_header=events.SharedHeader("X-Shared", SECRET), **settings
    )


async def test_log_of_a_vault_that_fails(caplog):
    """The record says which part failed, and its frames hold neither the headers nor the body."""

    async def vault():
        raise OSError

    receiver = _receiver_whose_vault(vault)
    receipt = await receiver.receive(
        BODY, {**HEADERS, "Content-Type": "application/json"}
    )

    assert receipt.status == 503
    [record] = [each for each in caplog.records if each.exc_info]
    assert record.getMessage() == "The source of secrets failed: ConfigurationError"
    told = shown(record.exc_info[1])
    assert SECRET not in told
    assert "evt_1" not in told


@pytest.mark.parametrize("end", [asyncio.CancelledError, SystemExit])
@pytest.mark.parametrize("call", ["receive", "answer", "asgi"])
def test_delivery_that_is_cut_short(call, end):
    """An application's own timeout, or the end of its process, shows no header and no body in a frame."""

    async def vault():
        await forever()

    def clock():
        raise SystemExit  # as a signal's handler may do at any place

    receiver = (
        _receiver_whose_vault(SECRET, clock=clock)
        if end is SystemExit
        else _receiver_whose_vault(vault)
    )
    given = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
    given.append((b"content-type", b"application/json"))

    async def arrive():
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def chunks():
        yield BODY

    async def deliver():
        delivering = {
            "receive": lambda: receiver.receive(BODY, given),
            "answer": lambda: receiver.answer("POST", given, chunks()),
            "asgi": lambda: receiver.asgi_app(
                {"type": "http", "method": "POST", "headers": given}, arrive, arrive
            ),
        }[call]()
        asyncio.get_running_loop().call_later(0.05, asyncio.current_task().cancel)
        await delivering

    with pytest.raises(end) as raised:
        asyncio.run(deliver())

    told = shown(raised.value)
    assert SECRET not in told
    assert "evt_1" not in told


def _opened(kind, address):
    """Return a context manager that opens a store of a kind at *address*."""
    match kind:
        case "event store":
            return events.Receiver(
                secrets="s", mode="inbox", store=PostgresStore(address, table="frames")
            )
        case "journal":
            return client(journal=address)
        case "batch":
            return Batch.open(address, client())
        case _:
            return Outbox.open(address, client())


@pytest.mark.parametrize("kind", ["event store", "journal", "batch", "outbox"])
@pytest.mark.parametrize("hangs", [True, False])
async def test_opening_that_an_application_gives_up(kind, hangs):
    """At whatever await its own timeout comes, no frame holds the password of the database."""
    async with database_proxy() as proxy:
        address = proxy.address.replace("@", f":{SECRET}@")
        if hangs:
            proxy.silence()

        async def use():
            async with _opened(kind, address) as opened:
                if kind == "journal":
                    await opened.recover()

        ended = False
        for steps in range(0, 400, 7):
            using = asyncio.ensure_future(use())
            for _ in range(steps):
                await asyncio.sleep(0)
            ended = using.done() or not using.cancel()
            try:
                await using
            except (asyncio.CancelledError, InvsvcError) as raised:
                assert SECRET not in shown(raised), steps  # noqa: PT017 - at most awaits nothing is raised
            if ended:
                break
        assert not (hangs and ended)


class _Cancelled:
    """Awaits *coroutine*, and cancels it at its await of that number; ``is_reached`` once it was there."""

    def __init__(self, coroutine, number):
        self._coroutine, self._left = coroutine, number
        self.is_reached = False

    def __await__(self):
        step = self._coroutine.send, None
        while True:
            try:
                waiting = step[0](step[1])
            except StopIteration as ended:
                return ended.value
            if self._left == 0:
                self.is_reached = True
                if waiting is not None and hasattr(waiting, "cancel"):
                    waiting.cancel()  # as a task does: what it waits for is cancelled first
                    waiting._asyncio_future_blocking = False
                step = self._coroutine.throw, asyncio.CancelledError()
            else:
                step = self._coroutine.send, (yield waiting)
            self._left -= 1


@pytest.mark.parametrize("kind", ["event store", "journal", "batch", "outbox"])
async def test_opening_that_is_cancelled_at_each_await(kind):
    """One after the other, until it opens: no frame holds the password of the database."""
    async with database_proxy() as proxy:
        address = proxy.address.replace("@", f":{SECRET}@")
        for number in range(1000):
            opening = _opened(kind, address)
            entering = (
                opening.__aenter__()
                if kind != "journal"
                else journal_of(opening).life._open()
            )
            cancelled = _Cancelled(entering, number)

            async def use(cancelled=cancelled):
                await cancelled

            try:
                await asyncio.create_task(use())
            except (asyncio.CancelledError, InvsvcError) as raised:
                assert SECRET not in shown(raised), number  # noqa: PT017 - at the last nothing is raised
            if not cancelled.is_reached:
                break
        await opening.__aexit__(None, None, None)
        assert number > 0
        assert not cancelled.is_reached
