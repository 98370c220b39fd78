"""The runs of keys in one process: those of one key take place one after the other."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.durable.key_names import conflict_error, conflict_of, digests_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from invsvc_async.durable.key_claims import Claims
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.writes.driver import AnyDriver
    from invsvc_async.writes.spec import WriteSpec


@attrs.define(eq=False)
class RunsOfKey:
    """The runs of a key in this process, which take place one at a time."""

    lock: asyncio.Lock = attrs.field(factory=asyncio.Lock)  # the present run has it
    many: int = 0  # runs that have begun, or wait for the lock
    # set when the present run ends
    ended: asyncio.Event = attrs.field(factory=asyncio.Event)
    last: AnyDriver | None = None  # the last run that has an outcome
    digest: str = ""  # of its write

    def wake_waiters(self) -> None:
        """Wake those that wait for the end of the present run."""
        self.ended.set()
        self.ended = asyncio.Event()


class KeyRuns:
    """The runs in this process, by the keys of their entries, for the *claims* of a journal."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._runs: dict[str, RunsOfKey] = {}

    @contextmanager
    def of(self, name: str) -> Generator[RunsOfKey]:
        """Count a run of the key *name*, or a change that keeps runs waiting, while the block runs."""
        runs = self._runs.setdefault(name, RunsOfKey())
        runs.many += 1
        try:
            yield runs
        finally:
            runs.many -= 1
            if not runs.many:
                del self._runs[name]
                runs.wake_waiters()

    def has(self, name: str) -> bool:
        """Return whether a run of the key has begun here, and has not ended."""
        return name in self._runs

    async def until_end(self, name: str) -> None:
        """Wait until the run of the key that has begun here ends, whatever came of it."""
        runs = self._runs.get(name)
        if runs is not None:
            await self._claims.waits.while_open(runs.ended.wait())


def outcome_since(
    before: AnyDriver | None, runs: RunsOfKey, spec: WriteSpec
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
        _check_same(spec, runs.digest)
        return outcome
    is_resumed = spec.resumes.identity == outcome.started_as.identity
    return outcome if is_resumed else None


def _check_same(spec: WriteSpec, stored: str) -> None:
    """Raise KeyConflictError unless *spec* is the write whose digests are *stored*."""
    conflict = conflict_of(spec, stored, digests_of(spec))
    if conflict is not None:
        raise conflict_error(spec, conflict)
