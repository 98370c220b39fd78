"""Reads against the simulator: which are sent again, how often, how soon, and how they end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from invsvc_async.client import Client, options_of
from invsvc_async.errors import (
    AuthenticationError,
    DeadlineExceededError,
    InvalidRequestError,
    NotFoundError,
    NotSentError,
    RateLimitedError,
    ResponseLostError,
    ServerError,
    ServiceError,
    UnreadableResponseError,
)
from invsvc_async.settings import ReadRetries, Timeouts
from invsvc_async.transport.credentials import ApiKey, TokenProvider
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from invsvc_async.simulator import Simulator
    from invsvc_async.transport.credentials import Credential

pytestmark = pytest.mark.every_python


class SkippingClock(LoopClock):
    """The loop's clock, on which time that is slept passes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    def now(self) -> float:
        """Return the time, including what was slept."""
        return super().now() + sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        """Skip *seconds*, but let others run."""
        self.slept.append(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> SkippingClock:
    """Return a clock whose sleeps take no time."""
    return SkippingClock()


class Rig:
    """Makes clients of one service, with one clock and no luck in the backoff."""

    def __init__(self, service: Simulator, clock: SkippingClock) -> None:
        self.service, self.clock, self.made = service, clock, list[Client]()

    def client(
        self,
        *,
        credential: Credential | None = None,
        reads: ReadRetries = ReadRetries(),
        timeout: Timeouts = Timeouts(),
    ) -> Client:
        """Make a client whose jitter is always the most."""
        credential = credential or ApiKey(self.service.api_key)
        client = Client(
            self.service.base_url,
            credential,
            reads=reads,
            timeout=timeout,
            clock=self.clock,
        )
        options_of(client).core.random = lambda: 1.0
        self.made.append(client)
        return client


@pytest.fixture
async def rig(service: Simulator, clock: SkippingClock) -> AsyncIterator[Rig]:
    """Yield a function that makes clients, and close them at the end."""
    rig = Rig(service, clock)
    yield rig
    for client in rig.made:
        await client.aclose()


async def test_read_that_succeeds_at_once(rig):
    """One call is one request, and nothing is waited for."""
    hook = rig.service.seed_webhook()

    assert (await rig.client().webhooks.get(hook.id)).id == hook.id
    assert rig.service.arrivals("webhooks.get") == 1
    assert rig.clock.slept == []


@pytest.mark.parametrize(
    "fault",
    [
        "500",
        "502",
        "503",
        "504",
        "408",
        "425",
        "reset",
        "close",
        "truncate",
        "half-head",
        "429 after 1",
    ],
)
async def test_read_after_a_fault_that_passes(rig, fault):
    """A fault that may pass costs one more request, after one pause."""
    hook = rig.service.seed_webhook()
    rig.service.script("webhooks.get", fault)

    assert (await rig.client().webhooks.get(hook.id)).id == hook.id
    assert rig.service.arrivals("webhooks.get") == 2
    assert len(rig.clock.slept) == 1


@pytest.mark.parametrize(
    "fault",
    [
        "400",
        "401",
        "401 raw",
        "403",
        "404",
        "409",
        "410",
        "429 credits",
        "501",
        "gateway 404",
    ],
)
async def test_read_that_is_refused(rig, fault):
    """A definite no is raised at once, under its status."""
    rig.service.script("webhooks.get", fault)

    with pytest.raises(ServiceError) as caught:
        await rig.client().webhooks.get("wh_1")

    assert str(caught.value.status) in fault
    assert rig.service.arrivals("webhooks.get") == 1
    assert rig.clock.slept == []


@pytest.mark.parametrize("fault", ["garbage", "html", "empty", "success false"])
async def test_read_whose_answer_cannot_be_read(rig, fault):
    """A whole 2xx that is not the specification's is raised at once, with its bytes."""
    rig.service.script("webhooks.get", fault)

    with pytest.raises(UnreadableResponseError) as caught:
        await rig.client().webhooks.get("wh_1")

    assert caught.value.status == 200
    assert caught.value.operation == "webhooks.get"
    assert rig.service.arrivals("webhooks.get") == 1


async def test_read_whose_attempts_are_used_up(rig):
    """The last error is raised after the first attempt and its retries; pauses double up to their most."""
    rig.service.script("webhooks.get", *["500"] * 9)

    with pytest.raises(ServerError):
        await rig.client(
            reads=ReadRetries(attempts=5, initial=0.5, maximum=1.5)
        ).webhooks.get("wh_1")

    assert rig.service.arrivals("webhooks.get") == 5
    assert rig.clock.slept == [0.5, 1.0, 1.5, 1.5]


@pytest.mark.parametrize(
    ("faults", "reads", "raised"),
    [
        pytest.param(
            ["500"],
            ReadRetries(attempts=1),
            ServerError,
            id="one attempt is one request",
        ),
        pytest.param(["500"], ReadRetries(quota=0), ServerError, id="no quota"),
        pytest.param(
            ["500", "404"], ReadRetries(), NotFoundError, id="then a definite no"
        ),
        pytest.param(
            ["500", "garbage"],
            ReadRetries(),
            UnreadableResponseError,
            id="then cannot be read",
        ),
    ],
)
async def test_read_that_is_not_repeated_any_more(rig, faults, reads, raised):
    """Its last error is raised, and nothing more is sent."""
    rig.service.script("webhooks.get", *faults)

    with pytest.raises(raised):
        await rig.client().with_options(reads=reads).webhooks.get("wh_1")

    assert rig.service.arrivals("webhooks.get") == len(faults)


async def test_read_that_never_leaves(rig):
    """A port on which nobody listens is tried again, and says that nothing left."""
    client = Client("http://127.0.0.1:1/v2", ApiKey("eyJ.a.b"), clock=rig.clock)

    with pytest.raises(NotSentError):
        await client.webhooks.get("wh_1")

    assert len(rig.clock.slept) == 3
    await client.aclose()


async def test_limited_read_waits_as_asked(rig):
    """The pause is no shorter than Retry-After."""
    hook = rig.service.seed_webhook()
    rig.service.script("webhooks.get", "429 after 7")

    await rig.client().webhooks.get(hook.id)

    assert rig.clock.slept == [7.0]


async def test_limited_read_beyond_its_deadline(rig):
    """A pause that would outlast the call is not begun; the refusal itself is raised."""
    rig.service.script("webhooks.get", "429 after 61")

    with pytest.raises(RateLimitedError) as caught:
        await rig.client().webhooks.get("wh_1")

    assert caught.value.retry_after == 61
    assert rig.clock.slept == []


async def test_pause_beyond_the_deadline(rig):
    """A backoff that would outlast the call is not begun; the last error is the cause."""
    rig.service.script("webhooks.get", "500")

    with pytest.raises(DeadlineExceededError) as caught:
        await rig.client(reads=ReadRetries(initial=100, maximum=100)).webhooks.get(
            "wh_1"
        )

    assert isinstance(caught.value.__cause__, ServerError)
    assert rig.service.arrivals("webhooks.get") == 1
    assert rig.clock.slept == []


@pytest.mark.parametrize(
    ("faults", "reads", "timeout", "sent"),
    [
        pytest.param(
            ["hang"],
            ReadRetries(attempts=1),
            Timeouts(attempt=30, call=0.2),
            {1},
            id="at once",
        ),
        pytest.param(
            ["hang"],
            ReadRetries(),
            Timeouts(attempt=30, call=0.2),
            {1},
            id="with retries left",
        ),
        pytest.param(
            ["500", "hang"],
            ReadRetries(),
            Timeouts(attempt=30, call=0.2),
            {2},
            id="in a retry",
        ),
        pytest.param(
            ["hang"] * 9,
            ReadRetries(attempts=1000, initial=0.001, maximum=0.001),
            Timeouts(attempt=0.1, call=0.25),
            {2, 3},
            id="again and again",
        ),
    ],
)
async def test_service_that_hangs_beyond_the_deadline(
    rig, faults, reads, timeout, sent
):
    """One deadline is over all attempts; one shrinks to what is left of the call. The lost answer is the cause."""
    rig.service.script("webhooks.get", *faults)
    loop = asyncio.get_running_loop()
    begun = loop.time()

    with pytest.raises(DeadlineExceededError) as caught:
        await rig.client(reads=reads, timeout=timeout).webhooks.get("wh_1")

    assert isinstance(caught.value.__cause__, (ResponseLostError, ServerError))
    assert 0.2 <= loop.time() - begun < 10
    assert rig.service.arrivals("webhooks.get") in sent


async def test_quota_that_is_used_up(rig):
    """Retries of all calls share one quota; without it the first error is the last."""
    client = rig.client(reads=ReadRetries(quota=3, refund=0))
    rig.service.script("webhooks.get", *["500"] * 9)

    for _ in range(3):
        with pytest.raises(ServerError):
            await client.webhooks.get("wh_1")

    assert rig.service.arrivals("webhooks.get") == 4 + 1 + 1


@pytest.mark.parametrize(
    ("faults", "sends"),
    [
        (["hang", "hang", "hang"], 2),
        (["hang", "500", "500"], 3),
        (["500", "hang", "500"], 3),
    ],
)
async def test_quota_after_timeouts(rig, faults, sends):
    """A retry after a timeout costs more, and only that one."""
    client = rig.client(
        reads=ReadRetries(quota=3, timeout_cost=2), timeout=Timeouts(attempt=0.1)
    )
    rig.service.script("webhooks.get", *faults)

    with pytest.raises((ResponseLostError, ServerError)):
        await client.webhooks.get("wh_1")

    assert rig.service.arrivals("webhooks.get") == sends


async def test_quota_is_paid_back(rig):
    """A success gives back, so that retries go on."""
    hook = rig.service.seed_webhook()
    client = rig.client(reads=ReadRetries(quota=1, refund=1))
    for _ in range(3):
        rig.service.script("webhooks.get", "500")
        await client.webhooks.get(hook.id)

    assert rig.service.arrivals("webhooks.get") == 6


async def test_quota_never_overflows(rig):
    """Successes give back what was spent, and no more."""
    hook = rig.service.seed_webhook()
    client = rig.client(reads=ReadRetries(quota=1, refund=5))
    for _ in range(3):
        await client.webhooks.get(hook.id)
    rig.service.script("webhooks.get", *["500"] * 3)

    with pytest.raises(ServerError):
        await client.webhooks.get(hook.id)

    assert rig.service.arrivals("webhooks.get") == 5


def provider(rig: Rig, asked: list[str]) -> TokenProvider:
    """Make a provider that notes each call and gives another key each time."""

    async def fresh() -> str:
        asked.append(rig.service.issue_key())
        return asked[-1]

    return TokenProvider(fresh, kind="api_key")


async def test_stale_token_is_renewed_once(rig):
    """A 401 of the authentication layer costs one fresh token and one more request, without a pause."""
    hook, asked = rig.service.seed_webhook(), []
    rig.service.script("webhooks.get", "401 raw")

    await rig.client(credential=provider(rig, asked)).webhooks.get(hook.id)

    assert len(asked) == 2
    assert rig.service.arrivals("webhooks.get") == 2
    assert rig.clock.slept == []


@pytest.mark.parametrize(
    ("faults", "fetched", "sent"),
    [
        pytest.param(
            ["401 raw", "500", "401 raw", "401 raw"],
            2,
            3,
            id="a fresh token is refused too",
        ),
        pytest.param(
            ["401"], 1, 1, id="in the standard envelope: a missing feature of the plan"
        ),
    ],
)
async def test_refusal_that_no_further_token_helps(rig, faults, fetched, sent):
    """It is raised as it is."""
    asked = []
    rig.service.script("webhooks.get", *faults)

    with pytest.raises(AuthenticationError):
        await rig.client(credential=provider(rig, asked)).webhooks.get("wh_1")

    assert (len(asked), rig.service.arrivals("webhooks.get")) == (fetched, sent)


async def test_fresh_token_that_does_not_come(rig):
    """The wait for it ends with the call, and the 401 is raised."""
    tokens, loop = [rig.service.issue_key()], asyncio.get_running_loop()

    async def source() -> str:
        return tokens.pop() if tokens else await loop.create_future()

    rig.service.script("webhooks.get", "401 raw")
    client = rig.client(
        credential=TokenProvider(source, kind="api_key"), timeout=Timeouts(call=2.0)
    )
    begun = loop.time()
    with pytest.raises(AuthenticationError):
        await client.webhooks.get("wh_1")

    assert loop.time() - begun < 20.0
    assert rig.service.arrivals("webhooks.get") == 1


async def test_read_cancelled_in_its_pause(rig):
    """Cancelling ends the call at once, and nothing more is sent."""
    pausing = asyncio.Event()

    async def sleep(_: float) -> None:
        pausing.set()
        await asyncio.Event().wait()

    rig.clock.sleep = sleep
    rig.service.script("webhooks.get", "500")
    call = asyncio.create_task(rig.client().webhooks.get("wh_1"))
    await pausing.wait()
    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    assert rig.service.arrivals("webhooks.get") == 1


async def test_wait_for_a_download(rig):
    """The status is read at its pace until it is completed, through faults that pass."""
    request = rig.service.seed_download(status="processing", packages=[])
    rig.service.script("invoices.download_status", "pass", *["500"] * 4, "pass")
    client = rig.client(reads=ReadRetries(initial=0.1, maximum=0.1))
    reads = 0

    def until(download) -> bool:
        nonlocal reads
        reads += 1
        if reads == 2:
            rig.service.seed_download(request_id=request["request_id"])
        return download.status == "completed"

    download = await client.invoices.wait_for_download(
        request["request_id"], poll=5, timeout=60, until=until
    )

    assert download.packages
    assert reads == 3
    assert [pause for pause in rig.clock.slept if pause == 5] == [5, 5, 5]
    assert rig.service.arrivals("invoices.download_status") == 7


async def test_wait_that_runs_out(rig):
    """A wait ends before the read that would come too late, and says so."""
    request = rig.service.seed_download(status="processing", packages=[])

    with pytest.raises(DeadlineExceededError, match=r"invoices\.wait_for_download"):
        await rig.client().invoices.wait_for_download(
            request["request_id"], poll=5, timeout=14
        )

    assert rig.service.arrivals("invoices.download_status") == 3
    assert rig.clock.slept == [5, 5]


async def test_wait_on_a_service_that_hangs(rig):
    """A read within a wait takes no longer than the wait."""
    rig.service.script("invoices.download_status", "hang")
    loop = asyncio.get_running_loop()
    begun = loop.time()

    with pytest.raises(DeadlineExceededError):
        await rig.client().invoices.wait_for_download("x", timeout=0.2, poll=0.1)

    assert loop.time() - begun < 10


async def test_wait_through_a_read_that_hangs(rig):
    """A read that runs out of its own time does not end a longer wait."""
    request = rig.service.seed_download()
    rig.service.script("invoices.download_status", "hang")
    client = rig.client(timeout=Timeouts(call=0.1))

    download = await client.invoices.wait_for_download(
        request["request_id"], timeout=60, poll=5
    )

    assert download.status == "completed"
    assert rig.service.arrivals("invoices.download_status") == 2


async def test_wait_for_what_is_not_there(rig):
    """A definite no ends a wait."""
    with pytest.raises(NotFoundError):
        await rig.client().invoices.wait_for_download("none")

    assert rig.service.arrivals("invoices.download_status") == 1


@pytest.mark.parametrize(
    "times",
    [
        {"timeout": 0},
        {"poll": -1},
        {"timeout": True},
        {"poll": "5"},
        {"poll": float("nan")},
        {"timeout": 10**400},
    ],
)
async def test_wait_without_sensible_times(rig, times):
    """Times of a wait are checked before anything is sent."""
    with pytest.raises(InvalidRequestError):
        await rig.client().invoices.wait_for_download("x", **times)

    assert rig.service.arrivals() == 0


async def never(_found):
    return False


@pytest.mark.parametrize("until", [never, "completed"])
async def test_wait_with_a_condition_that_cannot_be_asked(rig, until):
    """An async function would always be true, because nobody awaits it; both waits refuse it."""
    client = rig.client()
    with pytest.raises(
        InvalidRequestError, match="until: must be a function that is not async"
    ):
        await client.invoices.wait_for_download("x", until=until)
    with pytest.raises(
        InvalidRequestError, match="until: must be a function that is not async"
    ):
        await client.payments.settle_reminder(
            "p", "0b9e6b0a-3f52-4d0e-9a6f-6f0d7b8f5a11", until=until
        )
    assert rig.service.arrivals() == 0


@pytest.mark.filterwarnings("ignore:coroutine 'never' was never awaited")
async def test_wait_with_a_condition_that_returns_a_coroutine(rig):
    """It is no answer, and does not end the wait as if it were true."""
    request = rig.service.seed_download(status="processing", packages=[])
    with pytest.raises(
        InvalidRequestError, match="until: must be a function that is not async"
    ):
        await rig.client().invoices.wait_for_download(
            request["request_id"], until=lambda download: never([download])
        )


async def test_settle_a_reminder(rig):
    """The same UUID is read until the caller is content; nothing is ever sent."""
    payment, operation = "pay_1", "0b9e6b0a-3f52-4d0e-9a6f-6f0d7b8f5a11"
    rig.service.seed_reminder(payment, operation)
    seen = []

    def until(found) -> bool:
        seen.append(found)
        return len(seen) == 3

    found = await rig.client().payments.settle_reminder(payment, operation, until=until)

    assert found is seen[-1]
    assert found.content
    assert (
        rig.service.arrivals("payments.reminder_operation")
        == rig.service.arrivals()
        == 3
    )
