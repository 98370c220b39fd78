"""One process's part of a table: rows become writes, many of them under way, and writes become results."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import attrs

from invsvc_async.concurrency.thread_calls import PULSE
from invsvc_async.durable.keyed_run import changed_by
from invsvc_async.engines.client_checks import check_journal, check_secrets_are_kept
from invsvc_async.engines.places import RowOptions, RowPlace
from invsvc_async.engines.results import RowResult
from invsvc_async.engines.row_keys import key_of
from invsvc_async.errors import ConfigurationError, InvalidRequestError, JournalError
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.writes.journal import keys_of
from invsvc_async.writes.write import Write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from invsvc_async.client import Client
    from invsvc_async.engines.portals import OpenPortal
    from invsvc_async.engines.row_keys import Key
    from invsvc_async.writes.write import AnyWrite

R = TypeVar("R")
WriteOf: TypeAlias = "Callable[[Client, R], AnyWrite]"
# Rows under way for each place: in doubt, waiting for another write, or finished and not yet taken.
AHEAD: Final = 20
AWAY: Final = 300.0  # s for which rows wait for a journal that is away
_FINAL: Final = (Verdict.APPLIED, Verdict.SUPERSEDED)  # nothing is sent for these again
_REMEMBERED: Final = (
    65_536  # latest rows, whose keys are compared with those that follow
)


@attrs.frozen(kw_only=True)
class Settings(Generic[R]):
    """How rows become writes. See ``send_rows``, which takes the same."""

    write_of: WriteOf[R]
    key: Key[R]
    concurrency: int = 50
    rate: float | None = None
    several: bool = False  # processes, of an engine
    # a sink has no results, which would have the secrets of new webhooks
    is_sink: bool = False

    def __attrs_post_init__(self) -> None:
        """Check the settings, before a row is read."""
        if not callable(self.write_of):
            raise _misuse("write_of", "takes a function of (client, row)")
        is_column = isinstance(self.key, str) and self.key
        if not is_column and not callable(self.key):
            raise _misuse("key", "takes the name of a column, or a function of a row")
        if not isinstance(self.concurrency, int) or self.concurrency < 1:
            raise _misuse("concurrency", "takes a whole number, 1 or more")
        if self.rate is not None and not self.rate > 0:
            raise _misuse("rate", "takes rows a second, more than 0, or None")


class RowSender(Generic[R]):
    """
    The rows of one iterator that are under way, and their results.

    The thread that asks for results also reads the rows and makes the writes; the loop of the portal sends.
    """

    def __init__(self, lent: OpenPortal, settings: Settings[R]) -> None:
        portal = lent.portal
        self._portal = portal
        self._settings = settings
        self._view = portal.client._view  # noqa: SLF001 - the package's own
        check_journal(portal.client, several=settings.several)
        journal: Any = self._view.core.writes.journal  # any: of the engine's own client
        journal.wait_for_database(AWAY)
        self._places = lent.places_for(settings.concurrency, settings.rate)
        self._most = AHEAD * settings.concurrency
        self._under_way: dict[Future[RowResult], AnyWrite] = {}
        self._ended: SimpleQueue[Future[RowResult]] = SimpleQueue()
        self._keys: OrderedDict[str, None] = OrderedDict()  # of the latest rows
        # by thing: the place of its latest row, while that is under way
        self._latest: WeakValueDictionary[str, RowPlace] = WeakValueDictionary()
        self._has_more_rows = True  # as far as is known
        self._failure: BaseException | None = None

    def results(self, rows: Iterable[R]) -> Iterator[RowResult]:
        """
        Send *rows*, and yield their results as they come.

        After an error, no more rows are read; the error is raised once the rows under way have ended. If the
        iterator is left early, the rows under way are cancelled: run again, they go on from there.
        """
        try:
            yield from self._sent(_iterated(rows))
        finally:
            for future, write in [*self._under_way.items()]:
                future.cancel()
                write.close()
        if self._failure is not None:
            raise self._failure

    def _sent(self, rows: Iterator[R]) -> Iterator[RowResult]:
        while True:
            while self._may_start():
                invalid = self._start_next(rows)
                if invalid is not None:
                    yield invalid
                yield from self._ready()
            if not self._under_way:
                return
            yield from self._result_of(self._wait())

    def _may_start(self) -> bool:
        """Return whether to start another row now."""
        if self._failure is not None:
            return False
        return self._has_more_rows and len(self._under_way) < self._most

    def _start_next(self, rows: Iterator[R]) -> RowResult | None:
        """Start the next row, if there is one. Return the result of an invalid row."""
        try:
            row = next(rows)
        except StopIteration:
            self._has_more_rows = False
            return None
        except Exception as error:  # noqa: BLE001 - raised once the rows under way have ended
            self._failure = error
            return None
        key = ""
        try:
            key = key_of(row, self._settings.key)
            self._start(row, key)
        except InvalidRequestError as error:
            return RowResult.invalid(key, error)
        except Exception as error:  # noqa: BLE001 - as above
            self._failure = error
        return None

    def _start(self, row: R, key: str) -> None:
        """Make the write of *row*, and submit it."""
        place = RowPlace(self._places)
        client = self._portal.client.of(RowOptions.of(place, self._view))
        write: object = self._settings.write_of(client, row)
        if not isinstance(write, Write):
            raise _misuse(
                "write_of",
                f"must return a write, such as client.journeys.update(…), not {type(write).__name__}",
            )
        if write._spec.options.core is not self._view.core:  # noqa: SLF001 - as above
            write.close()
            raise _misuse("write_of", "must use the client that it is given")
        if self._settings.is_sink:
            check_secrets_are_kept(write)
        keyed: AnyWrite = write._rekeyed(key)  # noqa: SLF001 - the same
        self._put_behind_earlier(place, keyed)
        note = self._note(key)
        if keyed._spec.creates_webhook:  # noqa: SLF001 - as above
            keyed._begin_handover()  # noqa: SLF001 - as above
        future = self._portal.submit(_run(keyed, key, place, note))
        self._under_way[future] = keyed
        future.add_done_callback(self._ended.put)

    def _put_behind_earlier(self, place: RowPlace, write: AnyWrite) -> None:
        """Note which row under way comes before that of *write*, to the same thing; keep its place."""
        thing = changed_by(write._spec)  # noqa: SLF001 - as above
        if thing is not None:
            place.behind = self._latest.get(thing)
            self._latest[thing] = place

    def _note(self, key: str) -> str:
        """Return what is to be said of a row whose key an earlier row has had."""
        if key in self._keys:
            return f"The key {key!r} is in the input twice, and has one effect."
        self._keys[key] = None
        if len(self._keys) > _REMEMBERED:
            self._keys.popitem(last=False)
        return ""

    def _ready(self) -> Iterator[RowResult]:
        """Yield the results that are there."""
        while True:
            try:
                future = self._ended.get_nowait()
            except Empty:
                return
            yield from self._result_of(future)

    def _wait(self) -> Future[RowResult]:
        while True:
            try:
                return self._ended.get(timeout=PULSE)
            except Empty:
                continue

    def _result_of(self, future: Future[RowResult]) -> Iterator[RowResult]:
        """Yield the result of a row that has ended, or note its error."""
        write = self._under_way.pop(future)
        write.close()
        error = future.exception()
        if error is None:
            if write._spec.creates_webhook:  # noqa: SLF001 - the package's own
                # not earlier: if the iterator is left, nobody has the results that were not taken
                self._portal._running.soon(partial(write._end_handover, True))  # noqa: SLF001 - the same
            yield future.result()
        elif self._failure is None:
            self._failure = error


def _iterated(rows: Iterable[R]) -> Iterator[R]:
    """
    Return an iterator of *rows*.

    Raises:
        ConfigurationError: They are a frame, of which an iterator has the names of its columns, or none.
    """
    if callable(getattr(rows, "to_dict", None)) and hasattr(rows, "columns"):
        raise _misuse(
            "rows",
            f"takes an iterable of rows, not a {type(rows).__name__}. For one of pandas, pass "
            "frame.to_dict('records')",
        )
    try:
        return iter(rows)
    except TypeError:
        raise _misuse(
            "rows", f"takes an iterable of rows, not {type(rows).__name__}"
        ) from None


async def _run(
    write: AnyWrite,
    key: str,
    place: RowPlace,
    note: str,
) -> RowResult:
    """Send the write of a row once it has a place, and return its result."""
    try:
        await place.acquire(partial(_has_happened, write))
        place.has_started.set()
        return RowResult.of(key, await write.outcome(), note)
    except InvalidRequestError as error:  # another write has the key
        return RowResult.invalid(key, error)
    except BaseException:
        place.has_failed = True
        raise
    finally:
        place.end()


async def _has_happened(write: AnyWrite) -> bool:
    """Return whether the journal has a final verdict of *write*, which an earlier run has stored."""
    spec = write._spec  # noqa: SLF001 - the package's own
    keys = keys_of(spec.options.core.writes.journal)
    try:
        stored = await keys.outcome_of(spec.key, spec.team)
    except JournalError as error:
        if error.is_away:  # the write waits for the journal
            return False
        raise
    return stored is not None and stored.verdict in _FINAL


def _misuse(argument: str, takes: str) -> ConfigurationError:
    return ConfigurationError(f"{argument}: {takes}.")
