"""Rotation of secrets and shared headers: several at once, names, retirement, and a vault that is asked."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from invsvc_async import events
from invsvc_async.errors import (
    ConfigurationError,
    SignatureMismatchError,
    UnauthenticatedEventError,
)
from invsvc_async.events.event import Head
from invsvc_async.events.receiving import admission, judging
from tests.events.bodies import encoded, signature, signed_body, v2
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.one_python, pytest.mark.loop_time]

NOW = 1_800_000_000.0
AT = datetime.fromtimestamp(NOW, UTC)
RESOURCE = encoded(v2("invoice.created"))
SIGNED = encoded(signed_body("sat.invoice.synced"))


def receiver_of(**settings: Any) -> events.Receiver:
    receiver = events.Receiver(**{"secrets": (), "clock": lambda: NOW} | settings)

    @receiver.on("*")
    async def handle(_: events.Event) -> None: ...

    return receiver


async def sent(receiver: events.Receiver, value: str) -> int:
    """Deliver with a shared header, or if *value* is a secret, a signed event; return the status."""
    if value.startswith("whsec"):
        return (await receiver.receive(SIGNED, signature(SIGNED, value))).status
    return (await receiver.receive(RESOURCE, {"X-Key": value})).status


def uses(receiver: events.Receiver) -> list[tuple[str, str, int, int]]:
    return [
        (one.kind, one.label, one.matched, one.refused)
        for one in receiver.stats().credentials
    ]


async def test_use_of_each_secret_and_header() -> None:
    """An operator sees which are still used, by name or position, and when last."""
    receiver = receiver_of(
        secrets=[events.Secret("whsec_1", label="old"), "whsec_2"],
        shared_header=[
            events.SharedHeader("X-Key", "a", label="old"),
            events.SharedHeader("X-Key", "b"),
        ],
    )

    statuses = [
        await sent(receiver, value)
        for value in ("whsec_2", "a", "a", "b", "c", "whsec_3")
    ]

    assert statuses == [200, 200, 200, 200, 401, 401]
    assert uses(receiver) == [
        ("secret", "old", 0, 0),
        ("secret", "2", 1, 0),
        ("shared header", "old", 2, 0),
        ("shared header", "2", 1, 0),
    ]
    assert [one.last_matched_at for one in receiver.stats().credentials] == [
        None,
        AT,
        AT,
        AT,
    ]
    assert receiver.stats().answers[401, "refused"] == 2


async def test_receiver_that_does_not_know_its_secrets_yet() -> None:
    """It lists none of them, and rules no delivery out by its headers."""
    receiver = receiver_of(secrets=lambda: "whsec_1")

    assert receiver.stats().credentials == ()
    assert not receiver.doubts(Head({}))
    assert await sent(receiver, "whsec_1") == 200
    assert receiver.doubts(Head({}))


async def test_body_of_a_delivery_after_a_rotation() -> None:
    """Before its body is refused unread, the vault is asked; if the header is retired, that is counted."""
    vault = ["a"]
    receiver = receiver_of(shared_header=lambda: events.SharedHeader("X-Key", vault[0]))
    old = receiver_of(shared_header=[events.SharedHeader("X-Key", "a", retires_at=AT)])
    read: list[bytes] = []

    async def body() -> AsyncIterator[bytes]:
        read.append(RESOURCE)
        yield RESOURCE

    async def answered(receiver: events.Receiver, value: str) -> int:
        headers = {"Content-Type": "application/json", "X-Key": value}
        return (await receiver.answer("POST", headers, body())).status

    async with receiver:
        assert await answered(receiver, "a") == 200
        vault[0] = "b"
        assert (await answered(receiver, "b"), len(read)) == (200, 2)
        assert (await answered(receiver, "a"), len(read)) == (401, 2)
        vault.clear()
        assert (await answered(receiver, "c"), len(read)) == (503, 2)
    assert (await answered(old, "a"), len(read)) == (401, 2)
    assert old.stats().credentials[0].refused == 1


@pytest.mark.parametrize("seconds", [0, 1])
async def test_retirement(seconds: int, caplog: pytest.LogCaptureFixture) -> None:
    """At that time, what came with the retired one is refused, counted and logged once, without its value."""
    later, early = AT + timedelta(seconds=1), AT - timedelta(seconds=seconds)
    receiver = receiver_of(
        secrets=[
            events.Secret("whsec_1", label="old", retires_at=early),
            events.Secret("whsec_2"),
        ],
        shared_header=[
            events.SharedHeader("X-Key", "value-a", label="old", retires_at=early),
            events.SharedHeader("X-Key", "value-b", retires_at=later),
        ],
    )

    statuses = [
        await sent(receiver, value)
        for value in ("whsec_1", "whsec_1", "whsec_2", "value-a", "value-b", "value-c")
    ]

    assert statuses == [401, 401, 200, 401, 200, 401]
    assert [found[2:] for found in uses(receiver)] == [(0, 2), (1, 0), (0, 1), (1, 0)]
    assert caplog.text.count("is retired") == 2
    assert "whsec_1" not in caplog.text
    assert "value-a" not in caplog.text


async def test_retired_secret_is_no_way_in_without_one() -> None:
    """With every secret retired, signed events are refused, also where unsigned ones are accepted."""
    receiver = receiver_of(
        secrets=[events.Secret("whsec_1", retires_at=AT)], accept_unsigned=True
    )

    assert await sent(receiver, "whsec_1") == 401
    assert (await receiver.receive(SIGNED, {})).status == 401


def test_retirement_in_read() -> None:
    """The pure functions keep to it too."""
    gone, stays = (datetime.now(UTC) + timedelta(days=days) for days in (-1, 1))
    secret = [events.Secret("whsec_1", retires_at=gone)]
    with pytest.raises(SignatureMismatchError):
        events.verify(SIGNED, signature(SIGNED, "whsec_1"), secret)
    with pytest.raises(SignatureMismatchError):
        events.read(SIGNED, signature(SIGNED, "whsec_1"), secrets=secret)
    header = events.SharedHeader("X-Key", "a", retires_at=gone)
    with pytest.raises(UnauthenticatedEventError):
        events.read(RESOURCE, {"X-Key": "a"}, shared_header=header)
    events.verify(
        SIGNED,
        signature(SIGNED, "whsec_1"),
        events.Secret(b"whsec_1", retires_at=stays),
    )


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: events.Secret(""), "empty"),
        (lambda: events.Secret("hidden\n"), "white space"),
        (lambda: events.Secret("hidden", retires_at=datetime(2026, 1, 1)), "time zone"),  # noqa: DTZ001 - the fault
        (lambda: events.Secret("hidden", label="\x1b"), "label"),
        (lambda: events.SharedHeader("X", "hidden", retires_at=5), "time zone"),  # type: ignore[arg-type]
        (lambda: events.Receiver(secrets="hidden", refresh_after=0), "refresh_after"),
    ],
)
def test_terms_that_make_no_sense(make, word: str) -> None:
    """They are refused in words, and no traceback shows the secret."""
    with pytest.raises(ConfigurationError, match=word) as caught:
        make()
    trace = caught.value.__traceback__
    while trace is not None:
        if "invsvc_async" in trace.tb_frame.f_globals["__name__"]:
            assert "hidden" not in repr(trace.tb_frame.f_locals)
        trace = trace.tb_next
    assert "hidden" not in repr(
        events.Secret("hidden", retires_at=datetime(2026, 1, 1, tzinfo=UTC))
    )


class Vault:
    """A vault whose content changes; it counts how often it is asked, and how many ask at once."""

    def __init__(self, *, kind: str, content: Any = ("whsec_1",)) -> None:
        self.content = content
        self.asked = self.at_once = self.most = 0
        self.error: Exception | None = None
        self.takes = 0.0  # s
        self.ask = self._ask if kind == "async" else self._ask_now

    async def _ask(self) -> Any:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(self.takes)
        self.at_once -= 1
        return self._ask_now()

    def _ask_now(self) -> Any:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.content


@pytest.mark.parametrize("kind", ["async", "not async"])
async def test_vault_is_asked_once_while_it_is_fresh(kind: str) -> None:
    """What it returned serves all deliveries."""
    vault = Vault(kind=kind)
    receiver = receiver_of(secrets=vault.ask)

    assert [await sent(receiver, "whsec_1") for _ in range(20)] == [200] * 20
    assert vault.asked == 1


@pytest.mark.parametrize("kind", ["async", "not async"])
async def test_vault_after_a_rotation(kind: str) -> None:
    """The first delivery with the new secret is accepted, and one with the old no longer."""
    vault = Vault(kind=kind)
    receiver = receiver_of(secrets=vault.ask)
    assert await sent(receiver, "whsec_1") == 200

    vault.content = events.Secret("whsec_2", label="new")

    assert await sent(receiver, "whsec_2") == 200
    assert await sent(receiver, "whsec_1") == 401
    assert uses(receiver) == [("secret", "new", 1, 0)]


async def test_vault_of_shared_headers() -> None:
    """They may come from a function too, beside fixed secrets."""
    vault = Vault(kind="async", content=events.SharedHeader("X-Key", "a"))
    receiver = receiver_of(secrets="whsec_1", shared_header=vault.ask)
    assert [await sent(receiver, value) for value in ("a", "b", "whsec_1")] == [
        200,
        401,
        200,
    ]
    vault.content = [
        events.SharedHeader("X-Key", "b"),
        events.SharedHeader("X-Other", "a"),
    ]
    assert [await sent(receiver, value) for value in ("b", "a", "whsec_1")] == [
        200,
        401,
        200,
    ]


@pytest.mark.parametrize("takes", [0.4, 2.0])  # s: less than the pause, and more
async def test_vault_under_forged_deliveries(takes: float) -> None:
    """However many come, it is asked by one at a time, and no more often than once a second."""
    vault = Vault(kind="async")
    receiver = receiver_of(secrets=vault.ask)
    assert await sent(receiver, "whsec_1") == 200
    vault.takes = takes
    loop = asyncio.get_running_loop()
    started = loop.time()

    async def forge(number: int) -> None:
        await asyncio.sleep(number / 80)
        assert await sent(receiver, f"whsec_forged_{number}") == 401

    await asyncio.gather(*(forge(number) for number in range(300)))

    assert vault.asked <= 2 + (loop.time() - started) + 1
    assert vault.most == 1


@pytest.mark.parametrize(
    "content", [RuntimeError("whsec_1"), (), None, "", {"a": 1}, "whsec_1\n"]
)
async def test_vault_that_fails_later(
    content: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What it returned before stays valid; what fits nothing is to come again, as it may be genuine."""
    vault = Vault(kind="async")
    receiver = receiver_of(secrets=vault.ask)
    assert await sent(receiver, "whsec_1") == 200
    vault.content, vault.error = (
        content,
        content if isinstance(content, Exception) else None,
    )

    assert await sent(receiver, "whsec_2") == 503
    assert await sent(receiver, "whsec_1") == 200
    vault.content, vault.error = "whsec_2", None
    assert await sent(receiver, "whsec_2") == 200
    assert "whsec_1" not in caplog.text


async def test_vault_that_fails_at_first() -> None:
    """A receiver does not start; in one that is not started, the sender has to come again."""
    vault = Vault(kind="async")
    vault.error = OSError("down")
    receiver = receiver_of(secrets=vault.ask)
    with pytest.raises(ConfigurationError, match="function"):
        await receiver.__aenter__()
    assert await sent(receiver, "whsec_1") == 503
    vault.error = None
    async with receiver:
        assert await sent(receiver, "whsec_1") == 200


async def test_vault_that_hangs() -> None:
    """Known secrets do not wait for it, and neither does the end of the receiver."""
    hangs = asyncio.Event()
    vault = Vault(kind="async")

    async def ask() -> Any:
        if vault.asked:
            hangs.set()
            await asyncio.Event().wait()
        return vault._ask_now()

    receiver = receiver_of(secrets=ask, refresh_after=1e-9)
    async with receiver:
        while not hangs.is_set():
            assert await sent(receiver, "whsec_1") == 200
            await asyncio.sleep(0.5)
        assert await sent(receiver, "whsec_1") == 200
        assert await sent(receiver, "whsec_2") == 503


def test_vault_that_hangs_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not called again while it hangs, takes no thread that handlers need, and lets the process end."""
    monkeypatch.setattr(admission, "_PAUSE", 0.0)
    gates = {2: threading.Event(), 4: threading.Event()}
    calls: list[int] = []

    def vault() -> str:
        calls.append(number := len(calls) + 1)
        if number in gates:
            gates[number].wait()
        return f"whsec_{number}"

    async def refused(times: int) -> None:
        with monkeypatch.context() as quick:
            quick.setattr(admission, "_LIMIT", 0.01)
            assert [await sent(receiver, "whsec_9") for _ in range(times)] == [
                503
            ] * times

    async def run() -> None:
        assert await sent(receiver, "whsec_1") == 200
        await refused(40)
        assert len(calls) == 2
        gates[2].set()

        async def is_current() -> bool:
            return await sent(receiver, "whsec_3") == 200

        await until(is_current)
        await refused(1)

    receiver = receiver_of(secrets=vault)
    rescue = threading.Timer(60, lambda: [gate.set() for gate in gates.values()])
    rescue.start()
    asyncio.run(run())
    rescue.cancel()
    assert not gates[4].is_set()
    gates[4].set()


async def test_vault_in_a_thread_that_fails_or_cannot_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The delivery that needs it is answered 503; it is called again for the next one."""
    failures: list[BaseException] = [StopIteration(), OSError()]

    def vault() -> str:
        if failures:
            raise failures.pop()
        return "whsec_1"

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    receiver = receiver_of(secrets=vault)
    with monkeypatch.context() as full:
        full.setattr("threading.Thread.start", start)
        assert await sent(receiver, "whsec_1") == 503
    assert [await sent(receiver, "whsec_1") for _ in range(3)] == [503, 503, 200]


async def test_vault_is_asked_anew_in_time() -> None:
    """What it returned is replaced once it is old, without a delivery that fits nothing."""
    vault = Vault(kind="async")
    receiver = receiver_of(secrets=vault.ask, refresh_after=1e-9)
    assert await sent(receiver, "whsec_1") == 200
    vault.content = ("whsec_2",)

    async def is_retired() -> bool:
        return await sent(receiver, "whsec_1") != 200

    await until(is_retired)

    assert await sent(receiver, "whsec_2") == 200


async def test_vault_that_is_asked_when_the_receiver_stops() -> None:
    """The question ends with the receiver, and a delivery that waits for it is answered 503."""
    asked, ended = asyncio.Event(), asyncio.Event()
    answers = ["whsec_1"]

    async def vault() -> str:
        if answers:
            return answers.pop()
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    receiver = receiver_of(secrets=vault)
    async with receiver, asyncio.timeout(300):
        waiting = asyncio.create_task(sent(receiver, "whsec_2"))
        await asked.wait()

    assert ended.is_set()
    assert await waiting == 503


async def test_forged_bodies_that_wait_for_newer_secrets(monkeypatch) -> None:
    """Only some bytes of them wait, since anybody can send such: the senders of others are to come back."""
    # reaches: thousands of bodies else
    monkeypatch.setattr(judging, "_MOST_WAITING", 2 * len(SIGNED))
    answers, asked = asyncio.Event(), asyncio.Event()
    calls = 0

    async def vault() -> str:
        nonlocal calls
        calls += 1
        if calls > 1:
            asked.set()
            await answers.wait()
        return "whsec_1"

    receiver = receiver_of(secrets=vault)
    assert await sent(receiver, "whsec_1") == 200
    forged = [asyncio.create_task(sent(receiver, "whsec_9")) for _ in range(2)]
    await asked.wait()
    assert await sent(receiver, "whsec_9") == 503
    assert await sent(receiver, "whsec_1") == 200
    answers.set()
    assert [await each for each in forged] == [401, 401]
    assert await sent(receiver, "whsec_9") == 401
    assert receiver.stats().answers[503, "unavailable"] == 1
