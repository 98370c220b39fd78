"""``invsvc audit``: find duplicates that exist already."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from invsvc_async.cli.arguments import moment_of
from invsvc_async.cli.files import check_outputs
from invsvc_async.cli.options import Calling, argument, number, option
from invsvc_async.cli.output import (
    Exit,
    emitted,
    is_terminal,
    note,
    print_hanging,
    say,
    table,
)
from invsvc_async.cli.progress import progress
from invsvc_async.cli.visible_text import visible
from invsvc_async.storage.private_file import write_private

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async.audit import Audit, Duplicate
    from invsvc_async.batch.reports.html import Section
    from invsvc_async.codec.exact_json import WireObject

_SHOWN = 500  # duplicates on a terminal, and in a report
_TITLES = ("duplicate", "number", "list", "id", "created_at", "status", "what", "why")
_COLOURS = {"certain": "var(--unknown)", "likely": "var(--not-applied)"}
_CLOSED = "var(--applied)"
_WITHIN = "Most minutes between two invoices that are alike."
_LISTS = "invoices, invoices.payment_complements, webhooks. All by default."
_NAMES = {"invoices": "invoices.egress", "webhooks": "webhooks.list"}


async def audit(
    lists: Annotated[list[str] | None, argument(_LISTS, "LIST")] = None,
    *,
    within: Annotated[float, number(float, _WITHIN, least=0, metavar="MINUTES")] = 10.0,
    from_: Annotated[
        str | None, option("Invoices created at or after this time.", "TIME")
    ] = None,
    to: Annotated[
        str | None, option("Invoices created before this time.", "TIME")
    ] = None,
    report: Annotated[Path | None, option("Write an HTML page here.", "FILE")] = None,
    calling: Calling,
) -> int:
    """
    Find duplicates that exist already: `invsvc audit`, `invsvc audit invoices --from 2026-05-01 --json`.

    It reads invoices, payment complements and webhooks, and changes nothing.  Certain: two invoices with one
    idempotency key, or active webhooks with equal URL and events.  Likely: invoices with equal client, total
    and items within minutes.  For --from and --to, a date is its midnight in UTC.

    Exits with 0 if there is none, with 1 if there is one, certain or likely, and
    with 3 if others may not have been found.
    """
    from invsvc_async.audit import Audit
    from invsvc_async.audit.audit import LISTS

    check_outputs({"--report": report})
    last = moment_of("--to", to)
    if last is not None:
        last -= 1  # the service's own limit is inclusive
    searched = [_NAMES.get(name, name) for name in lists or LISTS]
    async with calling.client() as client:
        audit = Audit(
            client,
            lists=searched,
            within=within * 60,
            created_after=moment_of("--from", from_),
            created_before=last,
        )
        with audit:
            try:
                with progress("items read") as audit.on_read:
                    await audit.read()
            finally:  # what was found until then, too
                if audit.items_read or audit.complete:
                    _tell(audit, report, f"{', '.join(searched)}{_window(from_, to)}")
    if not audit.complete:
        return Exit.UNKNOWN
    if audit.counts:
        return Exit.FAILED
    return Exit.DONE


def _window(begin: str | None, end: str | None) -> str:
    """Return the limits of the times of creation, for a title."""
    window = f", from {begin}" if begin else ""
    if end:
        return f"{window}, to {end}"
    return window


def _tell(audit: Audit, report: Path | None, title: str) -> None:
    """Print what was found, and write the page of it."""
    kept: list[Duplicate] = []
    count = 0
    for each in audit.duplicates():
        emitted(each.to_dict())
        count += 1
        if len(kept) < _SHOWN:
            kept.append(each)
    counts = _counts(audit)
    facts: WireObject = {name.replace(" ", "_"): each for name, each in counts.items()}
    has_all = emitted({"complete": audit.complete, **facts, "gaps": audit.gaps})
    kept.sort(key=lambda each: (not each.is_open, each.certainty))
    if kept and not has_all:
        _print(kept)
    shown = len(kept)
    if has_all:
        shown = count
    note(_words(audit, shown, count))
    if report is not None:
        from invsvc_async.batch.reports.html import PLAIN, page_of_sections

        words = _words(audit, len(kept), count)
        colours = {**_COLOURS, "closed": _CLOSED}
        tiles = [
            (name, number, colours.get(name, PLAIN)) for name, number in counts.items()
        ]
        page = page_of_sections(f"Duplicates: {title}", words, tiles, _sections(kept))
        write_private(report, page)


def _print(duplicates: Sequence[Duplicate]) -> None:
    """Print duplicates: on a terminal those of one reason together, or else a line for each item."""
    if not is_terminal(sys.stdout):
        table(_TITLES, _lines(duplicates))
        return
    for each in _sections(duplicates):
        say("")
        print_hanging(f"{each.kind}: {each.title}: {each.count:,}", style="bold")
        print_hanging(f"  to do: {each.advice}", hanging=0)
        for name, remark, words in each.rows:
            print_hanging(f"  - {name} ({remark}): {words}")


def _counts(audit: Audit) -> dict[str, int]:
    from invsvc_async.audit import Certainty

    counts = {"items": audit.items_read}
    counts |= {str(each): audit.counts[each] for each in Certainty}
    return counts | {"closed": audit.closed}


def _words(audit: Audit, shown: int, count: int) -> str:
    words = ", ".join(f"{name}: {each:,}" for name, each in _counts(audit).items())
    if not count:
        words += ". No duplicate"
    if count > shown:
        words += f". {count - shown:,} more are not shown: --json prints them all"
    if audit.gaps:
        words += f". There may be others: {', and '.join(audit.gaps)}"
    return words


def _lines(duplicates: Sequence[Duplicate]) -> Iterator[list[str]]:
    """Yield the lines of a table: one for each item of a duplicate, which has a number."""
    for place, each in enumerate(duplicates, 1):
        for item in each.items:
            known_as, created, status, words = _told(item)
            head = [_certainty(each), str(place), each.what, known_as]
            yield [*head, created, status, words, each.why]


def _sections(duplicates: Sequence[Duplicate]) -> Iterator[Section]:
    """Yield the sections of a report: one for all that are duplicates for the same reason."""
    from invsvc_async.batch.reports.html import Section

    found: dict[tuple[str, str, str], list[tuple[int, Duplicate]]] = {}
    for place, each in enumerate(duplicates, 1):
        reason = (_certainty(each), each.what, each.why)
        found.setdefault(reason, []).append((place, each))
    for (certainty, what, why), group in found.items():
        first = group[0][1]
        rows: list[tuple[str, str, str]] = []
        for place, each in group:
            rows += _rows(place, each)
        yield Section(
            kind=certainty,
            title=f"{why} ({what})",
            colour=_colour(first),
            count=len(group),
            advice=_advice(first),
            rows=rows,
        )


def _rows(place: int, each: Duplicate) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of a duplicate in a section, which has a number in the page."""
    for item in each.items:
        known_as, *parts = _told(item)
        words = ", ".join(filter(None, parts))
        yield visible(known_as), f"duplicate {place}", visible(words)
    more = each.count - len(each.items)
    if more:
        yield f"and {more:,} more", f"duplicate {place}", ""


def _advice(each: Duplicate) -> str:
    if not each.is_open:
        return "nothing, because at most one of them is in effect."
    if "url" in each.items[0]:
        return "look at them, and delete those that nobody needs: invsvc write webhooks.delete ID"
    return (
        "look at them, and cancel those that nobody wanted, where you cancel invoices."
    )


def _colour(each: Duplicate) -> str:
    if each.is_open:
        return _COLOURS[str(each.certainty)]
    return _CLOSED


def _certainty(each: Duplicate) -> str:
    if each.is_open:
        return str(each.certainty)
    return f"{each.certainty}, closed"


def _told(item: WireObject) -> tuple[str, str, str, str]:
    """Return id, time of creation, status, and what the thing is, as text."""
    from invsvc_async.codec.exact_json import utc
    from invsvc_async.export.files import text_of

    if "url" in item:
        parts = [str(item["url"])]
    else:
        parts = [*_parts_of_invoice(item)]
    moment = item.get("created_at")
    created = ""
    if moment is not None:
        created = text_of(utc(moment))
    return (
        str(item.get("uuid") or item.get("id")),
        created,
        str(item.get("status") or ""),
        ", ".join(parts),
    )


def _parts_of_invoice(item: WireObject) -> Iterator[str]:
    if "total" in item:
        yield f"{item['total']} {item.get('currency', '')}".rstrip()
    if "client" in item:
        yield f"client {item['client']}"
    if "idempotency_key" in item:
        yield f"key {item['idempotency_key']}"
