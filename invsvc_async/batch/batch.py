"""
Offer batches: durable, resumable, at a pace; never send or judge a write here.
"""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING, Any, Self

from invsvc_async._errors import ConfigurationError, InvalidRequestError
from invsvc_async.batch.journals.open import entries_of
from invsvc_async.batch.journals.sqlite import SqliteBatch
from invsvc_async.batch.result import Result
from invsvc_async.batch.run import Run
from invsvc_async.batch.siblings import take_claims
from invsvc_async.client import options_of
from invsvc_async.reconcile.history import Verdict
from invsvc_async.settings import check_count

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from datetime import datetime
    from pathlib import Path
    from types import TracebackType

    from invsvc_async.batch.intake import Writes
    from invsvc_async.batch.journals.protocol import Entries
    from invsvc_async.batch.result import Progress, Summary
    from invsvc_async.client import Client

__all__ = ["Batch", "reopened"]

log: logging.Logger = logging.getLogger("invsvc_async.batch")

_PAGE = 256  # entries read at once
_CLAIMS = 50_000  # untagged creates of which it is remembered which webhook they made
_CERTAIN = (Verdict.NOT_APPLIED, Verdict.REFUSED, Verdict.SUPERSEDED)


class Batch:
    """
    Many writes that survive a kill at any moment: each happens once, or is named as unknown.

    Each intent is in the journal before its first byte is sent.  Opened again, a batch settles what was in
    flight by reading before it sends that, or anything else that touches the same thing.  Make one with
    :meth:`open`, and ``async with`` it.
    """

    def __init__(
        self,
        entries: Entries,
        client: Client,
        *,
        concurrency: int,
        rate: float | None,
        tag: bool,
        on_secret: Callable[[str, Any], Awaitable[None] | None] | None,
        on_progress: Callable[[Progress], None] | None,
        same_mode: bool,
    ) -> None:
        self.entries: Entries = entries
        self.client: Client = client
        self.concurrency: int = concurrency
        self.rate: float | None = rate
        self.tag: bool = tag
        self.on_secret: Callable[[str, Any], Awaitable[None] | None] | None = on_secret  # Any: a Webhook
        self.on_progress: Callable[[Progress], None] | None = on_progress
        self.same_mode: bool = same_mode
        self._run: Run | None = None
        self._warned = False

    @classmethod
    def open(
        cls,
        path: str | Path,
        client: Client,
        *,
        concurrency: int = 200,
        rate: float | None = None,
        tag: bool = True,
        on_secret: Callable[[str, Any], Awaitable[None] | None] | None = None,  # Any: a Webhook
        on_progress: Callable[[Progress], None] | None = None,
        same_mode: bool = False,
    ) -> Self:
        """
        Give the batch of the journal at *path*, which is made where there is none; ``async with`` opens it.

        *concurrency* is how many writes may be sending at once (the client's ``max_concurrency`` bounds it
        too); those that wait to be found out about do not count.  *rate* is sends a second, spread
        evenly.  *tag* puts a token at the end of the description of each webhook created, so that it is
        found again for certain.  *on_secret* is given the key and the webhook of each create, with its
        secret, before the write is noted as done (again, if a kill comes between); no journal holds a
        secret. *on_progress* is told some times a second.  *same_mode* is the caller's word that the
        client's credential has the team and data mode of the one that the batch was begun with, where it is
        another one.

        Raises:
            ConfigurationError: A setting that cannot work.

        """
        check_count("concurrency", concurrency, least=1)
        if rate is not None and not (isinstance(rate, (int, float)) and 0 < rate < inf):
            raise ConfigurationError(f"rate must be a number of sends a second, above 0, not {rate!r}")
        return cls(
            entries_of(path),
            client,
            concurrency=concurrency,
            rate=rate,
            tag=tag,
            on_secret=on_secret,
            on_progress=on_progress,
            same_mode=same_mode,
        )

    async def __aenter__(self) -> Self:
        """
        Take hold of the journal.

        Raises:
            JournalError: Another process has it; it is damaged, no batch's, or of a newer version; it
                cannot be written.
            InvalidRequestError: The batch belongs to another address, or was begun with another credential.

        """
        await self.entries.open()
        try:
            await self._check_place()
            claims = reversed(list(await self.entries.claims(_CLAIMS)))
            take_claims(options_of(self.client).session.writes, claims)
        except BaseException:
            await self.entries.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(grace=0.0)
        await self.entries.aclose()

    def run(self, writes: Writes = ()) -> AsyncIterator[Result]:
        """
        Do what the journal has left and then *writes*, and give each result as it comes; what is done is
        skipped.

        *writes* is an iterable or an async iterable of writes, or the path of a file of lines; it is read
        as results are taken, so a million fit in little memory.  A file is looked through first, and
        nothing is sent unless all of it is well-formed.  A write's key is ``write.keyed(…)``'s, or made from
        its content and its occurrence among equal ones.  Writes that touch the same thing keep their order.

        Raises:
            InvalidRequestError: Two writes have one key, or the write under a key is another than before:
                what stands before it may have been sent.  Lines are no writes: nothing was sent.
            JournalError: An intent could not be stored; it was not sent.
            ConfigurationError: A run of this batch is under way.

        """
        if self._run is not None and not self._run.ended:
            raise ConfigurationError("a run of this batch is under way: take its results first, or stop it")
        self._run = self._new_run(writes)
        return self._run

    def work(self) -> AsyncIterator[Result]:
        """
        Work on a batch that machines share until :meth:`stop`, and give the results of what is done here.

        Raises:
            ConfigurationError: The journal is a file, which one process owns: use :meth:`run`.

        """
        if not isinstance(self.entries, SqliteBatch):
            self._run = self._new_run((), lasting=True)
            return self._run
        raise ConfigurationError("a journal in a file has no workers: run the batch, or give postgresql://…")

    def _new_run(self, writes: Writes, *, lasting: bool = False) -> Run:
        if isinstance(self.entries, SqliteBatch):
            return Run(self, writes)
        from invsvc_async.batch.shared_run import SharedRun

        return SharedRun(self, writes, lasting=lasting)

    async def stop(self, grace: float = 10.0) -> None:
        """
        Begin nothing more; let what is under way end within *grace* seconds and shelve the rest.

        The run then ends by itself.  What was shelved is settled by the next run.
        """
        if self._run is not None:
            await self._run.stop(grace)

    @property
    def progress(self) -> Progress | None:
        """How the latest run stands; ``None`` before the first."""
        return None if self._run is None else self._run.progress()

    async def summary(self) -> Summary:
        """Count the writes that the journal holds, by how they stand."""
        return await self.entries.summary()

    async def results(self, *, verdict: Verdict | str | None = None) -> AsyncIterator[Result]:
        """
        Walk the results in the journal, of one *verdict* or of all, in the order of the input.

        Raises:
            InvalidRequestError: There is no such verdict.

        """
        after, wanted = 0, None if verdict is None else _verdict(verdict)
        while page := await self.entries.done(wanted, after, _PAGE):
            for entry in page:
                yield Result.of(entry)
            after = page[-1].seq

    async def retry(self, *, verdict: Verdict | str) -> int:
        """
        Make the writes of *verdict* to do again, for the next run, and tell how many.

        NOT_APPLIED, REFUSED and SUPERSEDED ones are written anew; UNKNOWN ones are settled first, and sent
        only on proof of absence.

        Raises:
            InvalidRequestError: APPLIED ones are done.

        """
        return await reopened(verdict)(self.entries)

    async def prune(self, *, done_before: datetime) -> int:
        """
        Empty what was done before *done_before* (aware) of bodies, evidence and stories, and tell how many
        were.

        Key, digest and verdict stay, so that the same input is still skipped.  What is open is kept whole.

        Raises:
            InvalidRequestError: *done_before* has no time zone.

        """
        if done_before.tzinfo is None:
            raise InvalidRequestError("done_before: a time with its zone")
        return await self.entries.prune(round(done_before.timestamp() * 1000))

    def warn_once(self, words: str) -> None:
        """Log a warning, once for each batch."""
        if not self._warned:
            self._warned = True
            log.warning("%s", words)

    async def _check_place(self) -> None:
        """Refuse a client of another place: there, what the journal knows as done is not."""
        session = options_of(self.client).session
        base_url = await self.entries.fact("base_url", session.base_url)
        if base_url != session.base_url:
            raise InvalidRequestError(
                f"this batch was begun at {base_url}, and this client is for {session.base_url}"
            )
        mine = session.credential.fingerprint(session.base_url)
        begun_with = await self.entries.fact("credential", mine)
        if None not in (mine, begun_with) and mine != begun_with and not self.same_mode:
            raise InvalidRequestError(
                "this batch was begun with another credential; if this one has the same team and data mode, "
                "say same_mode=True"
            )


def reopened(verdict: Verdict | str) -> Callable[[Entries], Awaitable[int]]:
    """
    Give what makes the writes of *verdict* to do again in a journal, and tells how many.

    Raises:
        InvalidRequestError: There is no such verdict, or it is APPLIED, which is done.

    """
    wanted = _verdict(verdict)
    if wanted is Verdict.APPLIED:
        raise InvalidRequestError("what is applied is done: writing it again would make a second effect")
    return lambda entries: entries.reopen(wanted, keep_sends=wanted not in _CERTAIN)


def _verdict(named: Verdict | str) -> Verdict:
    try:
        return Verdict(named)
    except ValueError:
        raise InvalidRequestError(f"verdict: one of {', '.join(Verdict)}, not {named!r}") from None
