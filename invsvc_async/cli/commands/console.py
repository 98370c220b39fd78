"""``invsvc console``: the views of a store on pages, and its changes behind a confirmation."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple
from urllib.parse import parse_qs

import attrs

from invsvc_async.cli.commands.stores import PAGE as WATCH_PAGE
from invsvc_async.cli.options import Port, Profile, argument, misuse, option
from invsvc_async.cli.page_serving import serve_page
from invsvc_async.cli.store_options import (
    BATCH,
    JOURNAL,
    OUTBOX,
    StoreKind,
    StoreOptions,
)
from invsvc_async.storage.address import check_path, is_postgres, split

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from invsvc_async.batch.reports.live import Watch
    from invsvc_async.cli.console.confirmations import Console
    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.simulator.loopback_page import Data, Page

PAGE: Final = ("invsvc_async.cli.console", "page.html")
_KINDS: Final[dict[str, StoreKind]] = {
    each.name: each for each in (BATCH, OUTBOX, JOURNAL)
}
_PLACE = "A batch, an outbox, a client's journal or an event store: a file, or postgresql://…"
_KIND = "batch, outbox, journal or events, if the address does not say it."
_TABLE = "The table of an event store in PostgreSQL."
_OPENED = (
    "Open the page in a browser, whose process shows the address to others, "
    "or only print it."
)


@attrs.frozen
class ConsoleOptions:
    """The options of the command: which store, of which kind."""

    address: Annotated[str, argument(_PLACE, "ADDRESS", show_default=False)]
    kind: Annotated[
        Literal["batch", "outbox", "journal", "events"] | None, option(_KIND, "KIND")
    ] = None
    table: Annotated[str, option(_TABLE, "NAME")] = "invsvc_delivery"
    profile: Profile = None


class _Opened(NamedTuple):
    """A store that is open, for its pages."""

    console: Console
    name: str
    beside: dict[str, tuple[Page, Data]]


async def console(
    at: ConsoleOptions,
    *,
    port: Port = 0,
    open_: Annotated[bool, option(_OPENED, names=("--open/--no-open",))] = False,
) -> None:
    """
    Look at a store on pages, and change it: `invsvc console journal.db`.  Stop with Ctrl-C.

    The pages show what list, show, report, watch and workers print, and refresh themselves.  Retry, resolve,
    drop and revive ask before they do anything, and refuse if what they showed has changed since.  Nothing is
    sent to the service.

    The pages answer only to this machine, and only to who has the address: keep it to yourself.
    """
    from invsvc_async.cli.console.confirmations import Questions

    async with _opened(at) as (shown, name, beside):
        questions = Questions(shown)
        await serve_page(
            PAGE,
            questions.data,
            port=port,
            open_=open_,
            addresses=lambda url: {"console_url": url},
            words=lambda url: (
                f"The console of {name} is open; press Ctrl-C to close it.\n  console_url   {url}"
            ),
            acts={"ask": questions.ask, "confirm": questions.confirm},
            beside=beside,
        )


@asynccontextmanager
async def _opened(at: ConsoleOptions) -> AsyncGenerator[_Opened]:
    """Open the store for reading, and give its console."""
    kind = at.kind or _kind_of(at.address)
    if kind == "events":
        async with _opened_events(at) as opened:
            yield opened
        return
    from invsvc_async.batch.entries import name_of
    from invsvc_async.batch.reports.live import Watch
    from invsvc_async.cli.console.writes import WriteConsole

    store = StoreOptions(at.address, _KINDS[kind], profile=at.profile)
    async with store.opened(reading=True) as entries:
        watch = Watch(entries, at.address, kind)
        yield _Opened(
            console=WriteConsole(store, entries),
            name=name_of(at.address),
            beside={"watch": (WATCH_PAGE, partial(_of_console, watch))},
        )


async def _of_console(watch: Watch, query: Mapping[str, str]) -> WireObject:
    """Return the data of the page that watches, which then has a way back."""
    return {**await watch.data(query), "console": True}


@asynccontextmanager
async def _opened_events(at: ConsoleOptions) -> AsyncGenerator[_Opened]:
    from invsvc_async.batch.entries import name_of
    from invsvc_async.cli.commands.events import EventStoreOptions
    from invsvc_async.cli.console.events import EventConsole

    name = name_of(at.address)
    async with EventStoreOptions(at.address, at.table).opened() as store:
        yield _Opened(
            console=EventConsole(store, name),
            name=name,
            beside={},
        )


def _kind_of(address: str) -> str:
    """Return the kind of the store at *address*: a name in its query says it, or the file."""
    if is_postgres(address):
        named = [
            each for each in _KINDS if each in parse_qs(split(address, "console").query)
        ]
        if len(named) == 1:
            return named[0]
        raise misuse("an address in PostgreSQL may have several: say which", "--kind")
    check_path(address, "console")
    from invsvc_async.durable.store.opening import kind_of_file, without_names

    path = Path(without_names(address)[0])
    if not path.is_file():
        raise misuse(f"{address}: there is no such file", "ADDRESS")
    try:
        kind = kind_of_file(path)
    except OSError as error:
        raise misuse(f"{address}: it cannot be read ({error})", "ADDRESS") from error
    if kind is None:
        raise misuse(f"{address}: it is no store of this package", "ADDRESS")
    return kind
