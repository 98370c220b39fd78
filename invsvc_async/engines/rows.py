"""
One process's part of a table, written concurrently, with a result for each row.

As a program, with ``INVSVC_BASE_URL`` and ``INVSVC_API_KEY`` of ``invsvc serve``, and
``INVSVC_JOURNAL=calls.db``::

    from invsvc_async.engines.rows import send_rows

    ROWS = [{"order": f"order-{n}", "name": f"Dunning {n}"} for n in range(3)]

    def write_of(client, row):
        return client.journeys.update("jrn_1", name=row["name"])

    for result in send_rows(ROWS, write_of, key="order"):
        print(result.key, result.verdict, "replayed" if result.replayed else "sent")

Run again, also after a kill, it prints the same keys as replayed. The modules for engines do this for each
part of a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from invsvc_async.client import Client
from invsvc_async.durable.keyed_run import changed_by
from invsvc_async.engines.portals import portal_of
from invsvc_async.engines.results import IncompleteError, RowResult
from invsvc_async.engines.sender import RowSender, Settings
from invsvc_async.writes.line_names import line_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from invsvc_async.engines.arrow import RESULT_SCHEMA
    from invsvc_async.engines.row_keys import Key
    from invsvc_async.engines.sender import WriteOf
    from invsvc_async.writes.write import AnyWrite

__all__ = [
    "RESULT_SCHEMA",
    "IncompleteError",
    "RowResult",
    "partition_key",
    "send_rows",
]

R = TypeVar("R")


def send_rows(
    rows: Iterable[R],
    write_of: WriteOf[R],
    *,
    key: Key[R],
    client: Callable[[], Client] = Client.from_env,
    concurrency: int = 50,
    rate: float | None = None,
) -> Iterator[RowResult]:
    """
    Send the write of each row, many at a time, and return an iterator of results, as they come.

    *write_of* takes the client and a row, and returns a write, such as ``client.journeys.update(…)``. *key*
    is the column whose value is the key of the write, or a function of a row; it must be the same when the
    row is sent again. *client* makes the client, whose journal has the keys: one in PostgreSQL if several
    processes write. A process has one client for all iterators with the same *client*.

    At most *concurrency* requests of writes are in flight, of all such iterators of the process together that
    have the same *client*, *concurrency* and *rate*. Rows in doubt do not count while they are settled,
    nor do rows that wait for an earlier write to the same thing. At most 20 times *concurrency* rows are
    under way, in doubt, or finished and not yet taken; then no more are read. *rate* is new writes a second,
    divided among the processes that have the journal open.

    Writes to one thing take effect in the order of their rows. A row that is invalid, or whose key has
    another write, is a result, too. So is UNKNOWN. Rows wait for a journal that is away, for 5 minutes. Any
    other error is raised once the rows under way have ended, and those behind the row to the same thing are
    not sent; sent again, rows that have a verdict replay it.

    Secrets of new webhooks are in the results once. A result can be lost with its process, so also make the
    client with ``on_secret``.

    Raises:
        ConfigurationError: An argument is of no use, the client has no journal, or the rows have no column
            *key*.
        JournalError: The journal cannot be used.
    """
    settings = Settings(
        write_of=write_of,
        key=key,
        concurrency=concurrency,
        rate=rate,
        several=False,
    )
    return _results(rows, settings, client)


def _results(
    rows: Iterable[R],
    settings: Settings[R],
    client: Callable[[], Client],
) -> Iterator[RowResult]:
    with portal_of(client, keep=settings.several) as lent:
        yield from RowSender(lent, settings).results(rows)


def send_part(
    rows: Iterable[R],
    settings: Settings[R],
    client: Callable[[], Client],
) -> Iterator[RowResult]:
    """Send the rows of one part of a table of an engine, whose workers keep their client for the next one."""
    return _results(rows, settings, client)


def partition_key(write: AnyWrite) -> str:
    """
    Return the name of the thing that *write* changes, by which an engine can keep its rows together.

    Writes to one thing have one order only within one part of a table, and across parts as they happen to be
    sent. For a create it is what other creates could be mistaken for, such as the URL of a webhook. *write*
    can still be awaited, or dropped.
    """
    spec = write._spec  # noqa: SLF001 - the package's own
    write._spent = True  # noqa: SLF001 - as `to_line` does: it may be dropped
    thing = changed_by(spec) or line_of(spec.options.core, spec.request, None)
    return thing or spec.key or spec.operation.path


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:  # Any: a schema, for which pyarrow is imported
        if name != "RESULT_SCHEMA":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from invsvc_async.engines import arrow

        globals()[name] = arrow.RESULT_SCHEMA
        return arrow.RESULT_SCHEMA
