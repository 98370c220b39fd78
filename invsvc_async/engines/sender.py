"""One process's part of a table: rows become writes, many of them under way, and writes become results."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import attrs

from invsvc_async.concurrency.thread_calls import PULSE
from invsvc_async.engines.places import RowOptions, RowPlace
from invsvc_async.engines.results import RowResult
from invsvc_async.errors import ConfigurationError, InvalidRequestError
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.writes.journal import keys_of
from invsvc_async.writes.write import Write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from invsvc_async.client import Client
    from invsvc_async.engines.portals import OpenPortal
    from invsvc_async.writes.write import AnyWrite

R = TypeVar("R")
WriteOf: TypeAlias = "Callable[[Client, R], AnyWrite]"
Key: TypeAlias = "str | Callable[[R], object]"
# Rows under way for each place: in doubt, waiting for another write, or finished and not yet taken.
AHEAD: Final = 20
_FINAL: Final = (Verdict.APPLIED, Verdict.SUPERSEDED)  # nothing is sent for these again
_REMEMBERED: Final = (
    65_536  # latest rows, whose keys are compared with those that follow
)
_SHARE = "Use journal='postgresql://…', or set INVSVC_JOURNAL to it, which all workers then share."


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
        self._places = lent.places_for(settings.concurrency, settings.rate)
        self._most = AHEAD * settings.concurrency
        self._under_way: dict[Future[RowResult], AnyWrite] = {}
        self._ended: SimpleQueue[Future[RowResult]] = SimpleQueue()
        self._keys: OrderedDict[str, None] = OrderedDict()  # of the latest rows
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
        """Start the next row, if there is one. Return its result if it is invalid."""
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
        note = self._note(key)
        future = self._portal.submit(_run(keyed, key, place, note))
        self._under_way[future] = keyed
        future.add_done_callback(self._ended.put)

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
        self._under_way.pop(future).close()
        error = future.exception()
        if error is None:
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


async def _run(write: AnyWrite, key: str, place: RowPlace, note: str) -> RowResult:
    """Send the write of a row once it has a place, and return its result."""
    try:
        await place.acquire(partial(_has_happened, write))
        return RowResult.of(key, await write.outcome(), note)
    except InvalidRequestError as error:  # another write has the key
        return RowResult.invalid(key, error)
    finally:
        place.release()


async def _has_happened(write: AnyWrite) -> bool:
    """Return whether the journal has a final verdict of *write*, which an earlier run has stored."""
    spec = write._spec  # noqa: SLF001 - as above
    keys = keys_of(spec.options.core.writes.journal)
    stored = await keys.outcome_of(spec.key, spec.team)
    return stored is not None and stored.verdict in _FINAL


def key_of(row: R, key: Key[R]) -> str:
    """
    Return the key of *row*.

    Raises:
        InvalidRequestError: It has none.
        ConfigurationError: The rows have no such column.
    """
    value = key(row) if callable(key) else _column_of(row, key)
    # NaN is what pandas has for a key that is missing
    if value is None or value != value:  # noqa: PLR0124
        source = key if isinstance(key, str) else "the function"
        raise InvalidRequestError(f"key: is missing ({source} gave {value})")
    return str(value)


# Any: the caller says that rows have columns
def _column_of(row: Any, key: str) -> object:
    """Return what *row* has in the column *key*."""
    try:
        return row[key]
    except (KeyError, ValueError, TypeError):
        raise no_column(key, _columns_of(row)) from None


def no_column(key: str, columns: Sequence[str]) -> ConfigurationError:
    """Return the error of a table without the column *key*."""
    has = f", but {', '.join(map(str, columns))}" if columns else ""
    return ConfigurationError(
        f"key: the rows have no column {key!r}{has}. Name the column whose value is the same when the row is "
        "sent again, or pass a function of a row."
    )


def _columns_of(row: object) -> list[str]:
    if isinstance(row, Mapping):
        return [*map(str, row)]
    return [*map(str, getattr(row, "__fields__", ()))]  # of Spark's rows


def check_journal(client: Client, *, several: bool) -> None:
    """
    Check that the client has a journal, which has to be shared if there are *several* processes.

    Raises:
        ConfigurationError: There is none, or it is a file.
    """
    journal: Any = client._view.core.writes.journal  # noqa: SLF001 - as above
    if keys_of(journal) is None:
        advice = "" if several else "Use journal='calls.db' for one process. "
        raise ConfigurationError(
            f"journal: the client has none, so nobody would know what was sent. {advice}{_SHARE}"
        )
    if several and not journal.is_shared:
        raise ConfigurationError(
            f"journal: a file belongs to one process, and an engine has several. {_SHARE}"
        )


def check_secrets_are_kept(write: AnyWrite) -> None:
    """
    Check that ``on_secret`` gets the secret of a webhook that *write* creates, where no result has it.

    Raises:
        ConfigurationError: The client has no ``on_secret``. The write is closed.
    """
    spec = write._spec  # noqa: SLF001 - as above
    is_kept = spec.options.core.on_secret is not None
    if is_kept or not spec.creates_webhook:
        return
    write.close()
    raise ConfigurationError(
        "on_secret: is not set, and a write creates a webhook, whose secret no result has. Make the client "
        "with on_secret=… to keep secrets."
    )


def _misuse(argument: str, takes: str) -> ConfigurationError:
    return ConfigurationError(f"{argument}: {takes}.")
