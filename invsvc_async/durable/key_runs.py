"""The runs of keys in one process: those of one key take place one after the other."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

import msgspec

from invsvc_async.durable.key_names import check_same, digests_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from invsvc_async.durable.key_claims import Claims
    from invsvc_async.durable.key_scopes import KeyScopes
    from invsvc_async.durable.key_starts import KeyStart
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.writes.driver import AnyDriver
    from invsvc_async.writes.spec import WriteSpec


# made for every keyed write, and attrs classes are slower
class RunsOfKey(msgspec.Struct, eq=False):
    """
    The runs of the key *name* in this process, which take place one at a time.

    As a context manager, it counts a run, or a change that keeps runs waiting, while the block runs. It is in
    *registry* while there is one.
    """

    name: str
    registry: dict[str, RunsOfKey]
    # the present run has it
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    many: int = 0  # runs that have begun, or wait for the lock
    start: KeyStart | None = None  # of the present run
    # set when the present run ends; None: nobody waits for that
    ended: asyncio.Event | None = None
    last: AnyDriver | None = None  # the last run that has an outcome
    digest: str = ""  # of its write

    def __enter__(self) -> Self:
        self.many += 1
        self.registry[self.name] = self
        return self

    def __exit__(self, *_: object) -> None:
        self.many -= 1
        if not self.many:
            del self.registry[self.name]
            self.wake_waiters()

    def end_present(self) -> None:
        """End the present run: let the next run begin, and wake all runs that wait for the end."""
        self.start = None
        self.lock.release()
        self.wake_waiters()

    def wake_waiters(self) -> None:
        """Wake those that wait for the end of the present run."""
        if self.ended is not None:
            self.ended.set()
            self.ended = None


class KeyRuns:
    """The runs in this process, by the keys of their entries, for the *claims* of a journal."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._runs: dict[str, RunsOfKey] = {}

    def of(self, name: str) -> RunsOfKey:
        """Return the runs of the key *name*, in which a block then counts."""
        runs = self._runs.get(name)
        if runs is None:
            return RunsOfKey(name, self._runs)
        return runs

    def has(self, name: str) -> bool:
        """Return whether a run of the key has begun here, and has not ended."""
        return name in self._runs

    @asynccontextmanager
    async def kept_waiting(self, name: str) -> AsyncGenerator[None]:
        """Wait until no run of the key is under way; runs that begin then wait for the end of the block."""
        with self.of(name) as runs:
            await self._claims.waits.while_open(runs.lock.acquire())
            try:
                yield
            finally:
                runs.end_present()

    def wake_waiters(self, name: str) -> None:
        """Wake runs that wait for the end of the run of the key *name*."""
        if name in self._runs:
            self._runs[name].wake_waiters()

    async def until_end(self, name: str) -> None:
        """
        Wait until the run of the key that has begun here ends, whatever came of it.

        Return before that if the run wakes those that wait. The key has an entry, which the run may not know.
        """
        runs = self._runs.get(name)
        if runs is None:
            return
        if runs.start is not None:
            runs.start.find()
        if runs.ended is None:
            runs.ended = asyncio.Event()
        await self._claims.waits.while_open(runs.ended.wait())


async def outcome_since(
    before: AnyDriver | None,
    runs: RunsOfKey,
    spec: WriteSpec,
    scopes: KeyScopes,
) -> Outcome[Any] | None:
    """
    Return the outcome of the run of *runs* that has ended since *before* was the last one.

    ``None`` if there is none, or it is of another write than the one that *spec* resumes.

    Raises:
        KeyConflictError: It is of another write than *spec*.
    """
    if runs.last is before or runs.last is None:
        return None
    outcome = runs.last.outcome()
    if spec.resumes is None:
        scope = outcome.started_as.scope
        elsewhere = await scopes.compared(scope, spec.team)
        check_same(spec, runs.digest, digests_of(spec), elsewhere)
        return outcome
    is_resumed = spec.resumes.identity == outcome.started_as.identity
    return outcome if is_resumed else None
