"""Writes as values: to await, to change before they are sent, and to hand to a batch."""

from __future__ import annotations

import warnings
from collections.abc import Coroutine, Generator, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NoReturn,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
)

import attrs
from msgspec.structs import replace

from invsvc_async.concurrency.uncopied import Uncopied
from invsvc_async.errors import ConfigurationError, InvalidRequestError
from invsvc_async.models.common import UNSET, Unset
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.settings import AnyReader, ReconcilePolicy, warn_if_never_sent_again
from invsvc_async.writes.awaiters import Awaiters, TaskRuns
from invsvc_async.writes.driver import Driver, new_run, run_of
from invsvc_async.writes.journal import keys_of
from invsvc_async.writes.new_intent import intent_of, new_tag
from invsvc_async.writes.noted import noted_of

if TYPE_CHECKING:
    from types import TracebackType

    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.writes.noted import Noted
    from invsvc_async.writes.spec import WriteSpec


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class _Changes(TypedDict, total=False):
    """Fields of a ``WriteSpec`` that another write may have. Each may be left out."""

    policy: ReconcilePolicy
    key: str | None
    match: Literal["all", "operation"]
    noted: Noted
    tag: str | None


# what only an outcome has: the `secret` of a result is the webhook's
_OF_OUTCOMES = frozenset(
    {
        "applied",
        "attempts",
        "error",
        "evidence",
        "message",
        "replayed",
        "secret_lost",
        "unwrap",
        "value",
        "verdict",
    }
)
_APPLIED = Verdict.APPLIED  # on 3.11, access through the class takes as long as a call


class Write(
    Uncopied, Coroutine[Any, Any, T_co]
):  # Any: what a coroutine yields to its event loop is the loop's
    """
    A write that is sent when it is first awaited, and only then.

    ``await write`` returns the model, or raises if the write was not applied. ``await write.outcome()``
    returns the :class:`Outcome`, and raises only for cancellation and misuse. A write is a coroutine, so
    ``create_task``, ``TaskGroup``, ``gather`` and ``wait_for`` accept it.

    Awaiting it again returns the same result. A second awaiter shares the run of the first. If the first is
    cancelled, the second goes on from there, and first settles what was sent. If nothing was sent yet, newer
    writes that wait for the same resource come before it. A write that is dropped without being awaited,
    closed or handed to a batch warns.
    """

    _why_uncopied = (
        "Both would be sent. Call the method again for another write. For another process, use to_line(), "
        "and client.write_from(line) there."
    )

    __slots__ = (
        "_awaiters",
        "_driver",
        "_gone",
        "_has_arrived",
        "_intent",
        "_keep_lost",
        "_ran_keyed",
        "_runs",
        "_spec",
        "_spent",
    )

    def __init__(
        self, spec: WriteSpec, *, on_lost_secret: Literal["raise", "keep"] = "raise"
    ) -> None:
        reader: object = spec.reader
        if reader is not None and not callable(reader):
            problem = "reader: must be an async callable that takes (client, intent)"
            raise InvalidRequestError(problem, operation=spec.operation.name)
        if spec.lacks_tag and spec.policy.tag_creates and spec.resumes is None:
            spec = replace(spec, tag=new_tag())
        self._spec = spec
        self._keep_lost = on_lost_secret == "keep"
        self._intent = spec.resumes
        self._driver: Driver[T_co] | None = None
        self._ran_keyed = False  # a run under its key has begun, and may have sent it
        self._gone: str | None = None  # why it is not to be sent any more
        # Whether whoever awaits it has the result.  See `result_handover`.
        self._has_arrived = True
        self._awaiters = Awaiters()
        self._runs: TaskRuns[T_co] | None = None  # if it is used as a coroutine
        # Awaited, closed or handed on. Last, since `__del__` warns of a whole write alone.
        self._spent = False

    # --- what users call

    @property
    def intent(self) -> Intent:
        """
        What is to be written, and how far it is, as plain data without secrets or tokens.

        How far a write under a key is, its journal knows until it has ended: see ``client.unsettled``.
        """
        if self._driver is not None:
            return self._driver.current_intent()
        if self._intent is None:
            self._intent = intent_of(self._spec)
        return self._intent

    def to_line(self) -> WireObject:
        """
        Return the write as plain JSON values, for a file of a batch or for another process.

        ``client.write_from(line)`` makes the same request there: operation, arguments, team and key. A tag is
        made anew, and of an object that was passed, the line has the id alone. Policy and timeouts are those
        of that client. A line that may be read more than once needs a key.

        Raises:
            InvalidRequestError: The write is under way, or it has a policy, a text as tag, a reader, headers
                or a number that a line cannot have.
        """
        from invsvc_async.writes.as_data import line_of_write

        self._spent = True  # even if it is refused: nobody is left to await it
        if self._has_begun:
            problem = "a line of it would send it again; hand over its intent.to_json(), and settle it there"
            raise InvalidRequestError(problem, operation=self._spec.operation.name)
        line = line_of_write(self._spec, self.intent)
        if self._keep_lost:
            line["arguments"]["on_lost_secret"] = "keep"
        return line

    async def outcome(self) -> Outcome[T_co]:
        """
        Send the write, and return its outcome. Does not raise for errors of the service.

        Raises:
            ConfigurationError: The client is closed or belongs to another event loop, or the write has a key
                of your own; nothing was sent.
            JournalError: The intent could not be stored, so nothing was sent; or nothing more, if it is in
                ``client.unsettled``.
        """
        return (await self._driven()).outcome()

    async def _driven(self) -> Driver[T_co]:
        """Run it once, however many tasks await it."""
        self._spent = True
        awaiters = self._awaiters
        while (driver := self._driver) is None or driver.result.done is None:
            if awaiters.is_running:
                await awaiters.until_run_ends()
                continue
            try:
                awaiters.is_running = True
                if driver is None:
                    await self._begin()
                else:
                    await driver.drive()
            finally:
                try:
                    awaiters.end_run()
                except BaseException:
                    # A signal handler's: the others would wait for ever.
                    awaiters.end_run()
                    raise
        if self._has_arrived:
            driver.tell_heard()
        return driver

    def _begin_handover(self) -> None:
        """Note that another thread waits for the result, until ``_end_handover``."""
        self._has_arrived = False

    def _end_handover(self, has_arrived: bool) -> None:  # noqa: FBT001 - as a future tells it
        """
        Note, in the event loop, whether the thread that waited has the result, if there is one.

        If not, the intent is in ``client.unsettled``, as that of a write without a verdict is already.
        """
        self._has_arrived = True  # for whoever awaits it from here on
        driver = self._driver
        if driver is None or driver.result.done is None:
            return
        if has_arrived:
            driver.tell_heard()
        else:
            driver.leave_unheard()

    async def _begin(self) -> None:
        """Make the driver of this write, and run it."""
        if self._gone is not None:
            raise _gone_error(self._spec, self._gone)
        spec = self._spec
        resumes = spec.resumes
        # An intent has its key in any case; only that of a key of the user's has a nonce.
        if resumes is None:
            is_keyed = spec.key is not None
        else:
            is_keyed = resumes.nonce is not None
        if is_keyed:
            # The key may have another run, whose driver has the outcome: there is none before the end.
            self._driver = await self._run_keyed()
            return
        if resumes is None:  # by far the most
            driver: Driver[T_co] = new_run(spec, self._intent)
        else:
            driver = run_of(
                spec.options,
                resumes,
                spec.reader,
                policy=spec.policy,
                reads_only=False,
            )
        self._driver = driver
        await driver.drive()

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
        reads_lag: float | Unset = UNSET,
        journey_reader: AnyReader | Literal["journeys.get"] | None | Unset = UNSET,
        journey_reads_show_drafts: bool | Unset = UNSET,
        tag_creates: bool | Unset = UNSET,
    ) -> Write[T_co]:
        """
        Return the same write under another policy, or with single settings changed (in seconds).

        This one cannot be used any more.

        Raises:
            ConfigurationError: A setting cannot work, or the write is under way, closed or already replaced.
        """
        settings: dict[str, Any] = {  # Any: each has its own type
            "settle_after_error": settle_after_error,
            "settle_after_loss": settle_after_loss,
            "deadline": deadline,
            "resend": resend,
            "max_resends": max_resends,
            "wait_when_limited": wait_when_limited,
            "clock_slack": clock_slack,
            "clock_band": clock_band,
            "absence_within": absence_within,
            "reads_lag": reads_lag,
            "journey_reader": journey_reader,
            "journey_reads_show_drafts": journey_reads_show_drafts,
            "tag_creates": tag_creates,
        }
        changes = {
            name: value for name, value in settings.items() if value is not UNSET
        }
        self._spent = True  # even if it is refused below: nobody is left to await it
        other: object = policy
        if other is not None and not isinstance(other, ReconcilePolicy):
            raise ConfigurationError(
                f"policy: must be ReconcilePolicy(…), not {type(other).__name__}."
            )
        changed = attrs.evolve(policy or self._spec.policy, **changes)
        warn_if_never_sent_again(changed, self._spec.options.timeouts)
        return self._but(policy=changed)

    def keyed(
        self,
        key: str,
        *,
        match: Literal["all", "operation"] = "all",
        labels: Mapping[str, str] | None = None,
    ) -> Write[T_co]:
        """
        Return the same write under a user-supplied key. This one cannot be used any more.

        In a journal (``Client(journal=…)``), a batch or an outbox, the write under a key happens once,
        however often and in whichever process it is run. Awaiting it without a journal raises
        ``ConfigurationError``.

        A create of a webhook gets a tag at the end of its description, unless it has ``tag=False``: by the
        tag, any process finds the webhook again.

        With ``match="operation"``, awaiting a write with another body under the key returns the outcome of
        the first one, instead of raising ``KeyConflictError``: for bodies that contain a time, for example.

        *labels*, such as ``{"customer": "c-1"}``, are stored with the key, and never sent. By them,
        ``invsvc journal list --label customer=c-1`` finds the write, and so do the lists of batches and
        outboxes. Those of the run that claims the key stay; later runs change nothing of them. There are at
        most 10. A name has 1 to 64 letters, digits, ``_``, ``-`` or ``.``, a value up to 100 printable
        characters. They are stored as they are, and shown to whoever may read the store: no place for
        secrets.

        Raises:
            InvalidRequestError: The key does not have 1 to 200 printable characters, or *labels* are invalid.
                Or this write resumes an intent, which has another key, or none.
        """
        self._check_key(key)
        self._spent = True  # even if it is refused: nobody is left to await it
        noted = noted_of(self._spec.operation.name, labels=labels)
        return self._but(
            key=key,
            match=match,
            noted=noted,
        )

    def _rekeyed(self, key: str) -> Write[T_co]:
        """Return the same write under *key*, with its ``match`` and its notes."""
        self._check_key(key)
        return self._but(key=key)

    def _check_key(self, key: object) -> None:
        if not _is_key(key):
            self._spent = True  # even if it is refused: nobody is left to await it
            raise InvalidRequestError(
                "key: must have 1 to 200 printable characters",
                operation=self._spec.operation.name,
            )
        resumes = self._spec.resumes
        if resumes is not None and (resumes.nonce is None or resumes.key != key):
            self._spent = True
            raise InvalidRequestError(
                "key: a write that resumes an intent has the key of the intent, or none. Await it as it is.",
                operation=self._spec.operation.name,
            )

    def tagged(self) -> Write[T_co]:
        """
        Return the same create of a webhook with a tag at the end of its description.

        A write that is tagged already, creates no webhook, or resumes an intent, is returned as it is.
        """
        spec = self._spec
        if not spec.creates_webhook or spec.tag is not None:
            return self
        if spec.resumes is not None:  # the intent says what is sent
            return self
        return self._but(tag=new_tag())

    if not TYPE_CHECKING:  # otherwise a type checker would accept every name

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(_why_absent(name), name=name, obj=self)

    # --- the coroutine

    def __await__(self) -> Generator[Any, Any, T_co]:
        return self._value().__await__()

    async def _value(self) -> T_co:
        driver = await self._driven()
        value = driver.run.answers.value
        done = driver.result.done
        if value is not None and done is not None and done.verdict is _APPLIED:
            return value  # no outcome is built: it may never be asked for
        return value_of(self, driver.outcome())

    def send(self, value: Any, /) -> Any:
        """Run on to the next suspension, as coroutines do. For event loops."""
        return self._run_on("send", value)

    def throw(  # type: ignore[override]  # only the one-argument form is not deprecated
        self,
        typ: BaseException,
        _val: object = None,
        _tb: TracebackType | None = None,
        /,
    ) -> Any:
        """Raise *typ* inside, as coroutines do. For event loops."""
        return self._run_on("throw", typ)

    def close(self) -> None:
        """Stop it. If a byte may have been sent, its intent goes to ``client.unsettled``."""
        self._spent = True
        if not self._has_begun:
            self._gone = "it was closed"
        if self._runs is not None:
            self._runs.close()

    def _run_on(
        self, step: Literal["send", "throw"], value: Any
    ) -> Any:  # Any: as in send
        """Run a step in the current task."""
        self._spent = True
        if self._runs is None:
            self._runs = TaskRuns()
        return self._runs.run_on(self._value, step, value)

    def __del__(self) -> None:
        if not getattr(self, "_spent", True):
            name = self._spec.operation.name
            warnings.warn(
                f"{name} was never awaited: nothing was sent",
                RuntimeWarning,
                stacklevel=2,
                source=self,
            )

    def __repr__(self) -> str:
        return f"<Write {self._spec.operation.name}: {self._state()}>"

    def _state(self) -> str:
        """Return the verdict, or how far it has come without one."""
        if self._driver and self._driver.result.done:
            return self._driver.result.done.verdict
        if self._has_begun:
            return "under way"
        return "not sent"

    # --- how it is run

    @property
    def _has_begun(self) -> bool:
        """Whether a run of this write has begun. It may have been cancelled since."""
        return self._driver is not None or self._ran_keyed

    def _but(self, **changes: Unpack[_Changes]) -> Write[T_co]:
        if self._has_begun:
            raise ConfigurationError(
                "write: it is under way and cannot be changed. Change it before awaiting it."
            )
        if self._gone is not None:
            raise _gone_error(self._spec, self._gone)
        self._spent = True
        self._gone = "another write was made of it"
        changed = replace(self._spec, **changes)
        if self._keep_lost:
            return Write(changed, on_lost_secret="keep")
        return Write(changed)

    async def _run_keyed(self) -> Driver[T_co]:
        """Run the one write under the key, and return the run that has the verdict."""
        spec = self._spec
        keys = keys_of(spec.options.core.writes.journal)
        if keys is None:
            raise ConfigurationError(
                f"{spec.operation.name}: the key {spec.key!r} means something only where it is stored. Make "
                "the client with journal='calls.db' or journal='postgresql://…', or give the write to a "
                "batch or an outbox. Nothing was sent."
            )
        ran_before = self._ran_keyed
        self._ran_keyed = True
        try:
            driver: Driver[T_co] = await keys.run(spec)
        except InvalidRequestError:
            self._ran_keyed = ran_before  # this run has sent nothing
            raise
        return driver


def _gone_error(spec: WriteSpec, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{spec.operation.name}: this write was not sent, because {why}. Make a new one."
    )


def _is_key(key: object) -> bool:
    """Return whether *key* has 1 to 200 printable characters."""
    if not isinstance(key, str):
        return False
    if not 1 <= len(key) <= 200:
        return False
    return key.isprintable()


def _why_absent(name: str) -> str:
    """Return the message of the error for an attribute that a write does not have."""
    if name.startswith("_"):  # a protocol that asks whether it is there
        return f"'Write' object has no attribute {name!r}"
    awaited = "write.outcome()" if name in _OF_OUTCOMES else "write"
    return (
        f"'Write' object has no attribute {name!r}: its result is there once it is awaited. Write "
        f"(await {awaited}).{name}, or portal.call({awaited}).{name} without async."
    )


def take_over(write: Write[Any]) -> WriteSpec:
    """
    Close *write*, because a batch sends it from here on, and return its specification.

    Raises:
        InvalidRequestError: It is under way, or resumes an intent.
    """
    spec = write._spec
    if write._has_begun or spec.resumes is not None:
        problem = "a batch takes only writes that have not begun"
        raise InvalidRequestError(
            problem, operation=spec.operation.name, hint="Await this one instead."
        )
    write.close()
    write._gone = "it was handed to a batch"
    return spec


def value_of(write: Write[T], outcome: Outcome[T]) -> T:
    """Return the value of *write* with this *outcome*, or raise the error, as awaiting does."""
    if outcome.secret_lost and write._keep_lost:
        return outcome.value  # type: ignore[return-value]  # applied and found, so there is a value
    return outcome.unwrap()


AnyWrite: TypeAlias = Write[Any]  # Any: the operation says what its value is
