"""Durable batches of writes, which can be resumed and paced."""

from __future__ import annotations

import asyncio
import time
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

import attrs

from invsvc_async.batch.entries import (
    BEGUN,
    BatchEntries,
    entries_of,
    results_of,
    summary_of,
    workers_of,
)
from invsvc_async.batch.replaced import ReplacementNotes, telling_of_replacement
from invsvc_async.batch.restored import restored_of
from invsvc_async.batch.result import (
    Progress,
    Result,
    Summary,
    Worker,
    kept_outcome,
    outcome_in,
)
from invsvc_async.batch.sending import Sending
from invsvc_async.concurrency.uncopied import Uncopied
from invsvc_async.durable.entries import reopen_all
from invsvc_async.durable.entry import State
from invsvc_async.errors import ConfigurationError, InvalidRequestError, takes_secrets
from invsvc_async.reconcile.history import Verdict
from invsvc_async.settings import check_hooks

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterable,
        AsyncIterator,
        Awaitable,
        Callable,
        Iterable,
    )
    from datetime import datetime
    from pathlib import Path
    from types import TracebackType

    from invsvc_async.batch.file_check import Writes
    from invsvc_async.batch.run import Run
    from invsvc_async.client import Client
    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.models.common import Model
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.writes.write import Write


T = TypeVar("T")
_FAILED = (Verdict.NOT_APPLIED, Verdict.REFUSED, Verdict.UNKNOWN)


class Batch(Uncopied):
    """
    Many writes, each of which is applied once or reported as unknown, even if the process is killed.

    Each intent is in the journal before its first byte is sent. A batch that is opened again settles the
    writes that were in flight before it sends them again, or sends others to the same things. Make one with
    :meth:`open`, and use it with ``async with``.
    """

    _why_uncopied = "Both would send its writes. Pass on the batch itself, or open its journal again."

    def __init__(
        self,
        entries: BatchEntries,
        sending: Sending,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self.entries: BatchEntries = entries
        self.sending: Sending = sending
        self.client: Client = sending.client
        self.on_progress: Callable[[Progress], None] | None = on_progress
        self._run: Run | None = None
        self._replacements = ReplacementNotes(entries)
        self._is_open = False

    @classmethod
    @takes_secrets
    def open(
        cls,
        path: str | Path,
        client: Client,
        *,
        concurrency: int = 200,
        rate: float | None = None,
        per_team: int | None = None,
        tag: bool = True,
        on_secret: Callable[[str, Any], Awaitable[None] | None]
        | None = None,  # Any: a Webhook
        on_progress: Callable[[Progress], None] | None = None,
        same_mode: bool = False,
        stop_after: float | None = None,
        restored: bool = False,
        moved: bool = False,
    ) -> Self:
        """
        Return the batch with the journal at *path*. ``async with`` opens the journal, or creates it.

        *concurrency* is how many writes may be sent at once. The client's ``max_concurrency`` limits it too.
        Writes that are being settled do not count. *rate* is sends per second, spread evenly.

        *per_team* is how many writes of one team may be under way at once, in this process: those of others
        do not wait behind it. Teams that have writes take turns in any case. A team is the one that a request
        names (``client.for_team(…)``); all that name none count as one.

        *tag* puts a token at the end of the description of each new webhook, so that it can be identified.
        *on_secret* is called with the key and the webhook of each create, with its secret, before the write
        is stored as done. After a kill it may be called again. It must not wait for another untagged create
        of the same URL, which waits for it. No journal contains a secret. *on_progress* is called several
        times per second. *same_mode* asserts that a new credential has the team and data mode
        of the one with which the batch was begun.

        *stop_after* stops a run after so many writes with another verdict than APPLIED (a whole number), or
        at such a share of the finished writes (below 1; counted from 20 on). Writes under way end first.

        A journal that may lack sends is not opened, unless told how. *restored* says that it is an older
        copy: until an input has been read again, each write that it does not have as finished is settled
        before it may be sent, and is UNKNOWN if no read can tell. *moved* says that it is complete, although
        it is in another place.

        Raises:
            ConfigurationError: A setting cannot work.
        """
        check_hooks(on_progress=on_progress)
        sending = Sending(
            client=client,
            concurrency=concurrency,
            rate=rate,
            per_team=per_team,
            tag=tag,
            on_secret=on_secret,
            same_mode=same_mode,
            stop_after=stop_after,
        )
        return cls(
            entries_of(path, restored=restored, moved=moved), sending, on_progress
        )

    async def __aenter__(self) -> Self:
        """
        Open the journal.

        Raises:
            JournalError: Another process uses it, it is damaged or of a newer version, it is not the journal
                of a batch, it may lack sends, or it cannot be written.
            InvalidRequestError: The batch belongs to another base URL, or was begun with another credential.
            ConfigurationError: It is open already.
        """
        if self._is_open:  # what the first opening has would never be closed
            raise ConfigurationError("batch: it is open already. Enter it once.")
        self._is_open = True
        try:
            await self.entries.open()
            core = self.sending.core
            await self.entries.facts.check_client(
                core, "batch", same_mode=self.sending.same_mode
            )
            self.sending.epoch = str(
                await self.entries.facts.get("epoch", token_hex(16))
            )
            await self.entries.facts.get(BEGUN, str(time.time_ns() // 1_000_000))
            self.sending.restored = await restored_of(self.entries.store, self.client)
        except BaseException:
            self._is_open = False
            await self.entries.aclose()
            raise
        core.replacements.add(self._replacements)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._end_run()
        except asyncio.CancelledError:
            # what is under way would go on beside the next owner of the journal
            await self._end_run()
            raise
        finally:
            self._is_open = False
            self.sending.core.replacements.discard(self._replacements)
            await self.entries.aclose()

    @overload
    def run(
        self, writes: Iterable[Write[T]] | AsyncIterable[Write[T]]
    ) -> AsyncIterator[Result[T]]: ...

    @overload
    def run(self, writes: Writes = ()) -> AsyncIterator[Result]: ...

    def run(self, writes: Writes = ()) -> AsyncIterator[Result]:
        """
        Send the open writes in the journal and then *writes*, and yield each result as it arrives.

        *writes* is an iterable or an async iterable of writes, or the path of a file of JSON lines. It is
        read while results are taken, so a million writes need little memory. A file is checked first, and
        nothing is sent unless all of it is well-formed.

        Each result is yielded at least once. It counts as taken when the next one is asked for, by whichever
        task. After a kill, a ``break`` or an error, the next run first yields the results that were not
        taken; those have no ``outcome``, but for a webhook whose secret nobody has. If such a write was
        retried in between, only its later result is yielded.

        A write's key is that of ``write.keyed(…)``, or made from its content and its occurrence among equal
        writes. Finished writes are skipped. Writes to the same thing keep their order.

        Raises:
            InvalidRequestError: Two writes have the same key, or the write under a key has changed. Writes
                before it may have been sent. Or the file has bad lines: then nothing was sent.
            JournalError: An intent could not be stored; it was not sent.
            BatchStoppedError: The service refuses the credential, *stop_after* was reached, or the client was
                closed.
            ConfigurationError: A run of this batch is under way.
        """
        return self._begun(writes, lasting=False)

    def work(self) -> AsyncIterator[Result]:
        """
        Work on a shared batch until :meth:`stop`, and yield the results of this worker.

        Raises:
            ConfigurationError: The journal is a file: use :meth:`run`. Or a run of this batch is under way.
        """
        if not self.entries.store.is_shared:
            raise ConfigurationError(
                "work: a journal in a file cannot be shared. Use run(), or a journal at postgresql://…."
            )
        return self._begun((), lasting=True)

    def _begun(self, writes: Writes, *, lasting: bool) -> Run:
        from invsvc_async.batch.run import Run  # with all that sends

        self._check_idle(
            "work" if lasting else "run", "Take all its results first, or stop it."
        )
        self._run = Run(self, writes, lasting=lasting, before=self._run)
        return self._run

    async def stop(self, grace: float = 10.0) -> None:
        """
        Start no more writes, let those under way end within *grace* seconds, and shelve the rest.

        The run then ends by itself. Shelved writes are settled by the next run.
        """
        if self._run is not None:
            await self._run.stop(grace)

    def _check_idle(self, what: str, advice: str) -> None:
        if self._run is not None and not self._run.progress.has_ended:
            raise ConfigurationError(
                f"{what}: a run of this batch is under way. {advice}"
            )

    async def _end_run(self) -> None:
        if self._run is not None:
            await self._run.end()

    @property
    def progress(self) -> Progress | None:
        """The progress of the latest run, or ``None`` before the first."""
        if self._run is None:
            return None
        return self._run.progress.now()

    async def summary(self) -> Summary:
        """Count the writes in the journal by their state."""
        return await summary_of(self.entries)

    async def workers(self) -> list[Worker]:
        """
        Return the workers of the last day, the longest-running first.

        Raises:
            ConfigurationError: The journal is a file, which only one process can use.
        """
        return await workers_of(self.entries)

    async def results(
        self, *, verdict: Verdict | str | None = None
    ) -> AsyncIterator[Result]:
        """
        Iterate over the results in the journal, of one *verdict* or all, in the order of the input.

        Raises:
            InvalidRequestError: There is no such verdict.
        """
        wanted = None
        if verdict is not None:
            wanted = _verdict(verdict)
        async for result in results_of(self.entries, wanted):
            yield result

    # Any: the operation says what its value is
    async def get(self, key: str) -> Outcome[Any] | None:
        """
        Return the outcome of the write of *key*; ``None`` if it has no verdict yet, or is not known.

        A batch stores no value, error or history, and of an applied write no intent: the outcome has none,
        unless it is of a webhook whose secret nobody may have.

        Raises:
            JournalError: The journal cannot be read, or the entry is damaged.
        """
        entry = await self.entries.entry(key)
        if entry is None or entry.state is not State.DONE:
            return None
        commons = self.entries.store.commons
        outcome = kept_outcome(entry, commons) or outcome_in(entry, commons)
        told = await telling_of_replacement(self.entries, key, outcome)
        return attrs.evolve(told, replayed=True)

    async def retry(
        self,
        *,
        verdict: Verdict | str | Iterable[Verdict | str] = (),
        failed: bool = False,
        keys: Iterable[str] | None = None,
        force: bool = False,
    ) -> int:
        """
        Mark finished writes as to do, for the next run, and return how many they are.

        *verdict* is one verdict or several. *failed* adds NOT_APPLIED, REFUSED and UNKNOWN. *keys* limits
        this to writes with these keys. Without a verdict, it chooses them whatever their verdict, unless they
        are applied.

        NOT_APPLIED, REFUSED and SUPERSEDED ones are sent anew. UNKNOWN ones are settled first, and sent only
        on proof of absence. A write is not sent if a newer one of the batch to the same resource was: it is
        then NOT_APPLIED, and its result is marked ``overtaken``. With *force*, it becomes the newest itself.

        Raises:
            InvalidRequestError: Nothing is chosen, a verdict is APPLIED, or there is no such verdict.
        """
        if isinstance(keys, str):
            raise InvalidRequestError(
                "keys: must be several keys, not a text", hint="Pass a list."
            )
        named = [verdict] if isinstance(verdict, str) else [*verdict]
        wanted = {*map(_verdict, named)}
        if failed:
            wanted.update(_FAILED)
        if Verdict.APPLIED in wanted:
            raise InvalidRequestError(
                "verdict: applied writes are done, and sending them again would have a second effect"
            )
        if keys is not None:
            chosen = wanted or {*Verdict} - {Verdict.APPLIED}
            return len(await self.entries.do_again(keys, verdicts=chosen, at_end=force))
        if not wanted:
            raise InvalidRequestError(
                "retry: nothing is chosen", hint="Pass verdict, failed or keys."
            )
        return await reopen_all(self.entries, sorted(wanted), at_end=force)

    async def resolve(
        self,
        key: str,
        *,
        applied: bool | str | Model | WireObject,
        because: str,
        by: str | None = None,
    ) -> Outcome[Any]:  # Any: the operation says what its value is
        """
        Store what you have found out about the write of *key* as its verdict, and return the outcome.

        The arguments are those of :meth:`Client.resolve`. The next run yields the new verdict. A write that
        was not applied is sent once it is retried.

        Raises:
            InvalidRequestError: The arguments do not say what was found, or name another thing.
            JournalError: The write is not there, a living process has it, its verdict is final, nothing of it
                was sent, or the journal cannot be used. Nothing was stored.
        """
        from invsvc_async.durable.resolve import note, resolution, resolve

        resolved = await resolve(
            self.entries.store, key, resolution(applied, because, by)
        )
        note(self.sending.core, resolved)
        return resolved.outcome

    async def close_input(self) -> int:
        """
        Mark incomplete inputs as complete, as far as they were read; return how many there were.

        The input of a run is incomplete until its end was read and all its writes are in the journal. If a
        run ends before that, a later run whose input ends by itself completes it, or this method.

        Raises:
            ConfigurationError: A run of this batch is under way.
        """
        self._check_idle("close_input", "Stop it first.")
        return await self.entries.input_notes.close_of_dead()

    async def prune(self, *, done_before: datetime) -> int:
        """
        Delete bodies, evidence and stories of writes finished before *done_before*. Return how many.

        Key, digest and verdict stay, so that the same input is still skipped. Open and unknown writes are not
        changed.

        Raises:
            InvalidRequestError: *done_before* has no time zone.
        """
        if done_before.tzinfo is None:
            raise InvalidRequestError(
                "done_before: must be a datetime with a time zone"
            )
        return await self.entries.prune(round(done_before.timestamp() * 1000))


def _verdict(named: Verdict | str) -> Verdict:
    try:
        return Verdict(named.replace("-", " ").replace("_", " "))
    except ValueError:
        raise InvalidRequestError(
            f"verdict: must be one of {', '.join(Verdict)}, not {named!r}"
        ) from None
