"""
Be a write that has not been sent yet: a value to await, to key, to hand to a batch; never send on its own.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import attrs
from msgspec.structs import replace

from invsvc_async.models.common import UNSET, Model
from invsvc_async.reconcile.first import sent_at_once
from invsvc_async.reconcile.history import Verdict
from invsvc_async.writes.driver import Driver, Start, taken_up
from invsvc_async.writes.new_intent import before, intent_of, line_of, new_tag, tagged_body, with_before
from invsvc_async.writes.results import result_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.models.common import Unset
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.settings import AnyReader, ReconcilePolicy
    from invsvc_async.transport.session import ClientOptions, Request

__all__ = ["Write"]

T_co = TypeVar("T_co", covariant=True)
_APPLIED = Verdict.APPLIED  # on 3.11, to reach an enum's member through its class takes as long as a call


class Write(Coroutine[Any, Any, T_co]):  # Any: what a coroutine yields to its event loop is the loop's
    """
    A write that is sent when it is awaited, once, however often that is.

    ``await write`` gives the model, or raises if it did not come about; ``await write.outcome()`` gives the
    :class:`Outcome` and raises only for cancellation and misuse.  It is a coroutine: ``create_task``,
    ``TaskGroup``, ``gather`` and ``wait_for`` take it.  A second awaiter shares the first's run; if the first
    is cancelled, the second goes on from there, finding out first what became of what was sent.  Dropped
    without being awaited, closed or handed on, it warns.
    """

    __slots__ = (
        "_baseline",
        "_driver",
        "_gone",
        "_intent",
        "_keep_lost",
        "_key",
        "_policy",
        "_reader",
        "_request",
        "_resumes",
        "_running",
        "_runs",
        "_spent",
        "_tag",
        "_view",
        "_waiting",
    )  # fmt: skip

    def __init__(
        self,
        view: ClientOptions,
        request: Request,
        *,
        baseline: Model | Wire = None,
        tag: bool | str | None = None,
        reader: AnyReader | None = None,
        on_lost_secret: Literal["raise", "keep"] = "raise",  # noqa: S107 - a policy, no password
        resumes: Intent | None = None,
    ) -> None:
        given: object = reader
        if given is not None and not callable(given):
            from invsvc_async._errors import InvalidRequestError

            raise InvalidRequestError(
                "reader: is no async callable of the client and the intent", operation=request.operation.name
            )
        self._spent = False  # awaited, closed or handed on
        self._view = view
        self._request = request
        self._baseline = baseline
        self._reader = reader
        self._keep_lost = on_lost_secret == "keep"  # noqa: S105 - a policy, no password
        self._tag = new_tag() if tag is True else tag or None
        self._resumes = resumes
        self._policy = resumes.policy if resumes else view.reconcile
        self._tag_if_asked()
        self._key: str | None = None
        self._intent = resumes
        self._driver: Driver[T_co] | None = None
        self._gone: str | None = None  # why it is not to be sent any more
        self._runs: dict[asyncio.Task[Any] | None, Coroutine[Any, Any, T_co]] = {}  # as a coroutine, by task
        self._running = False
        self._waiting: list[asyncio.Future[None]] = []

    # --- what users call

    @property
    def intent(self) -> Intent:
        """What is to be written (or, once under way, how far it is), as plain data: no secret, no token."""
        if self._driver is not None:
            return self._driver.current_intent()
        if self._intent is None:
            self._intent = self._intents()()
        return self._intent

    async def outcome(self) -> Outcome[T_co]:
        """
        Send it, find out what became of it, and tell; never raises for what the service did.

        Raises:
            ConfigurationError: The client cannot be used so (another loop, closed); nothing was sent.
            JournalError: The intent could not be stored; nothing was sent.

        """
        driver = await self._driven()
        self._tell_heard(driver)
        return driver.outcome()

    def _tell_heard(self, driver: Driver[T_co]) -> None:
        """Note in the journal that whoever awaits this has the verdict, once that is so."""
        if driver.journal is not None:
            asyncio.get_running_loop().call_soon(driver.journal.heard, driver.intent.identity)

    async def _driven(self) -> Driver[T_co]:
        """Run it, once, however many wait for that."""
        self._spent = True
        while (driver := self._driver) is None or driver.done is None:
            if self._running:
                waiter = asyncio.get_running_loop().create_future()
                self._waiting.append(waiter)
                await waiter
                continue
            self._running = True
            try:
                if driver is None:
                    self._refuse_gone()
                    driver = self._driver = self._new_driver()
                await driver.drive()
            finally:
                self._running = False
                if self._waiting:
                    self._wake()
        return driver

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def with_policy(  # noqa: PLR0913 - each is a setting of its own
        self,
        policy: ReconcilePolicy | None = None,
        *,
        settle_after_error: float | Unset = UNSET,
        settle_after_loss: float | Unset = UNSET,
        deadline: float | Unset = UNSET,
        resend: Literal["proven", "never"] | Unset = UNSET,
        max_resends: int | Unset = UNSET,
        wait_when_limited: bool | Unset = UNSET,
        clock_slack: float | Unset = UNSET,
        clock_band: float | Unset = UNSET,
        absence_within: float | Unset = UNSET,
        journey_reader: AnyReader | Literal["journeys.get"] | None | Unset = UNSET,
        journey_reads_show_drafts: bool | Unset = UNSET,
        tag_creates: bool | Unset = UNSET,
    ) -> Write[T_co]:
        """
        Give the same write under another policy, or with single settings changed (seconds); this one is
        spent.

        Raises:
            ConfigurationError: A setting that cannot work; or the write is under way, closed or spent.

        """
        self._spent = True  # or refused as a whole: nobody is left to await it
        changes: dict[str, Any] = {  # Any: each is checked by ReconcilePolicy
            "settle_after_error": settle_after_error,
            "settle_after_loss": settle_after_loss,
            "deadline": deadline,
            "resend": resend,
            "max_resends": max_resends,
            "wait_when_limited": wait_when_limited,
            "clock_slack": clock_slack,
            "clock_band": clock_band,
            "absence_within": absence_within,
            "journey_reader": journey_reader,
            "journey_reads_show_drafts": journey_reads_show_drafts,
            "tag_creates": tag_creates,
        }
        changed = {name: value for name, value in changes.items() if value is not UNSET}
        return self._but(policy=attrs.evolve(policy or self._policy, **changed))

    def keyed(self, key: str) -> Write[T_co]:
        """
        Give the same write under a key of the caller's (1 to 200 printable characters), for batches; this one
        is spent.

        Raises:
            InvalidRequestError: The key is empty, longer than that, or not printable.

        """
        if not isinstance(key, str) or not key or len(key) > 200 or not key.isprintable():
            from invsvc_async._errors import InvalidRequestError

            self._spent = True  # as in with_policy
            raise InvalidRequestError(
                "key: 1 to 200 printable characters", operation=self._request.operation.name
            )
        return self._but(key=key)

    def tagged(self) -> Write[T_co]:
        """
        Give the same write, where it creates a webhook, with a tag at the end of its description; this one is
        spent.
        """
        if self._request.operation.finder != "created_webhook" or self._tag is not None:
            return self
        return self._but(tag=new_tag())

    # --- the coroutine

    def __await__(self) -> Generator[Any, Any, T_co]:
        return self._value().__await__()

    async def _value(self) -> T_co:
        driver = await self._driven()
        self._tell_heard(driver)
        if driver.value is not None and driver.done is not None and driver.done.verdict is _APPLIED:
            return driver.value  # without an outcome, which nobody may ask for
        outcome = driver.outcome()
        if outcome.secret_lost and self._keep_lost:
            return outcome.value  # type: ignore[return-value]  # applied and found: there is a value
        return outcome.unwrap()

    def send(self, value: Any, /) -> Any:
        """Run on, as a coroutine does; for event loops."""
        return self._run_on(lambda run: run.send(value))

    def throw(  # type: ignore[override]  # the one-argument form is the only one that is not deprecated
        self, typ: BaseException, _val: object = None, _tb: TracebackType | None = None, /
    ) -> Any:
        """Raise inside, as a coroutine does; for event loops."""
        return self._run_on(lambda run: run.throw(typ))

    def close(self) -> None:
        """Give it up: what was not sent never is; what may have been goes to ``client.unsettled``."""
        self._spent = True
        if self._driver is None:
            self._gone = "it was closed"
        for run in [*self._runs.values()]:
            run.close()
        self._runs.clear()

    def _run_on(self, step: Callable[[Coroutine[Any, Any, T_co]], Any]) -> Any:  # Any: as in send
        """Take a step for the task that asks: each task has a coroutine of its own, as each awaiter has."""
        self._spent = True
        task = asyncio.current_task() if asyncio._get_running_loop() else None  # noqa: SLF001 - asks, raises not
        run = self._runs.get(task)
        if run is None:
            run = self._runs[task] = self._value()
        try:
            return step(run)
        except BaseException:  # it has ended: a coroutine raises to say so
            self._runs.pop(task, None)
            raise

    def _refuse_gone(self) -> None:
        if self._gone is not None:
            from invsvc_async._errors import ConfigurationError

            raise ConfigurationError(
                f"{self._request.operation.name}: {self._gone}, and is not sent. Make the write anew"
            )

    def __del__(self) -> None:
        if not getattr(self, "_spent", True):
            name = self._request.operation.name
            warnings.warn(
                f"{name} was never awaited: nothing was sent", RuntimeWarning, stacklevel=2, source=self
            )

    def __repr__(self) -> str:
        done = self._driver.done if self._driver else None
        state = done.verdict if done else "under way" if self._driver else "not sent"
        return f"<Write {self._request.operation.name}: {state}>"

    # --- how it is made

    def _but(
        self, *, policy: ReconcilePolicy | None = None, key: str | None = None, tag: str | None = None
    ) -> Write[T_co]:
        if self._driver is not None:
            from invsvc_async._errors import ConfigurationError

            raise ConfigurationError("a write that is under way cannot be changed")
        self._refuse_gone()
        other: Write[T_co] = Write(
            self._view,
            self._request,
            baseline=self._baseline,
            tag=tag or self._tag,
            reader=self._reader,
            on_lost_secret="keep" if self._keep_lost else "raise",
            resumes=self._resumes,
        )
        other._policy = policy or self._policy
        other._tag_if_asked()
        other._key = key or self._key
        self._spent, self._gone = True, "another write was made of it"
        return other

    def _tag_if_asked(self) -> None:
        """Tag the create of a webhook if its policy says so."""
        creates = self._request.operation.finder == "created_webhook" and self._resumes is None
        if creates and self._tag is None and self._policy.tag_creates:
            self._tag = new_tag()

    def _new_driver(self) -> Driver[T_co]:
        """Make its run."""
        view, request = self._view, self._request
        result = result_of(request.operation)
        if self._resumes is not None:
            intent = attrs.evolve(self._resumes, policy=self._policy)
            return Driver(
                view,
                request,
                intent,
                result,
                line=line_of(request, intent.scope.team, intent.tag) or f"key {intent.key}",
                begin=partial(taken_up, view.session),
                reader=self._reader,
                takes_up=True,
            )
        line = line_of(request, view.team_of(request), self._tag)
        begin = partial(_begin, view, request, line, self._policy, self._baseline)
        if self._tag is not None:
            request = replace(request, body=tagged_body(request, self._tag))
        return Driver(
            view,
            request,
            self._intent or self._intents(),
            result,
            line=line,
            begin=begin,
            reader=self._reader,
        )

    def _intents(self) -> Callable[..., Intent]:
        """
        Return what makes its intent, and does not refer to this write: it is held by what the write holds.
        """
        return partial(
            intent_of,
            self._view,
            self._request,
            self._policy,
            key=self._key,
            tag=self._tag,
            baseline=self._baseline,
            reader=self._reader,
        )


def _begin(
    view: ClientOptions,
    request: Request,
    line: str | None,
    policy: ReconcilePolicy,
    baseline: Model | Wire,
    intent: Intent | Callable[..., Intent],
) -> Start:
    """Begin the first run of a write, with what its client knows by now."""
    known = before(view, request, line, policy)
    first = sent_at_once(
        request.operation,
        view.timeouts,
        has_baseline=baseline is not None or known.last is not None,
        knows_clock=known.bounds is not None,
        never_listed=known.never_listed,
    )
    if callable(intent):
        return Start(partial(intent, known), (), first)
    return Start(with_before(intent, known, baseline), (), first)
