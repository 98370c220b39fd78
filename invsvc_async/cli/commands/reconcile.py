"""``invsvc reconcile``: compare your own rows with what the service lists."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from invsvc_async.cli.arguments import moment_of
from invsvc_async.cli.files import check_outputs, existing_file
from invsvc_async.cli.options import Calling, argument, misuse, option
from invsvc_async.cli.output import Exit, emitted, note, table
from invsvc_async.cli.progress import progress

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import tzinfo

    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.drift import Comparison, Difference

_SHOWN = 500  # differences on a terminal, and in a report
_TITLES = ("difference", "key", "line", "field", "yours", "theirs")
_ROWS = "Rows: .csv, .jsonl or .parquet; - is stdin."
_MAP = "Compare FIELD with COLUMN; FIELD= leaves it out."
Zone = Annotated[
    str | None, option("Zone of times without an offset: America/Mexico_City.", "NAME")
]


async def reconcile(
    what: Annotated[
        str, argument("invoices, invoices.payment_complements or webhooks.", "LIST")
    ],
    rows: Annotated[Path, argument(_ROWS, "FILE", callback=existing_file)],
    *,
    key: Annotated[str | None, option("Column of the uuid or id.", "COLUMN")] = None,
    map_: Annotated[list[str] | None, option(_MAP, "FIELD=COLUMN")] = None,
    from_: Annotated[
        str | None, option("Created at or after this time.", "TIME")
    ] = None,
    to: Annotated[str | None, option("Created before this time.", "TIME")] = None,
    zone: Zone = None,
    ignore_case: Annotated[bool, option("Ignore the case of keys.")] = False,
    format_: Annotated[str | None, option("csv, jsonl or parquet.", "FORMAT")] = None,
    delimiter: Annotated[str, option("Between the cells of CSV.", "CHARACTER")] = ",",
    report: Annotated[Path | None, option("Write an HTML page here.", "FILE")] = None,
    calling: Calling,
) -> int:
    """
    Compare your own rows with the service: `invsvc reconcile invoices mine.csv --key folio --map
    total=amount`.

    A column is compared if it has the name of a field, or is mapped to one.  Each difference was read twice.
    For --from and --to, a date is its midnight in the --zone, or else in UTC.
    Exits with 0 if there is none, with 1 if there is one, and with 3 if others may not have been found.
    """
    from invsvc_async.drift import Comparison

    check_outputs({"--report": report}, rows=rows)
    what = {"invoices": "invoices.egress", "webhooks": "webhooks.list"}.get(what, what)
    fields = _fields(what, map_ or (), key)
    place = _zone(zone)
    settings: dict[str, Any] = {
        "fields": fields,
        "created_from": moment_of("--from", from_, place),
        "created_to": moment_of("--to", to, place),
        "form": format_,
    }
    settings |= {
        "zone": place,
        "ignore_case": ignore_case,
        "delimiter": delimiter,
    }
    async with calling.client() as client:
        with progress(f"{what}: rows and items read") as advance:
            found = Comparison(client, what, rows, **settings, on_read=advance)
            kept = await _emit_all(found)
    counts = {name.replace(" ", "_"): count for name, count in _counts(found).items()}
    has_all = emitted({"complete": found.complete, **counts})
    if kept and not has_all:
        table(_TITLES, chain.from_iterable(map(_lines, kept)))
    shown = len(kept)
    if has_all:
        shown = found.counts.total()
    note(_words(found, shown))
    if report is not None:
        _write_report(
            report, f"{what} and {rows.name}{_window(from_, to)}", found, kept
        )
    if not found.complete:
        return Exit.UNKNOWN
    if found.counts:
        return Exit.FAILED
    return Exit.DONE


def _window(begin: str | None, end: str | None) -> str:
    """Return the limits of the times of creation, for a title."""
    window = f", from {begin}" if begin else ""
    if end:
        return f"{window}, to {end}"
    return window


async def _emit_all(found: Comparison) -> list[Difference]:
    """Emit each difference as JSON, if that is wanted; return the first ones."""
    kept: list[Difference] = []
    async for each in found:
        emitted(_plain(each))
        if len(kept) < _SHOWN:
            kept.append(each)
    return kept


def _fields(
    what: str,
    pairs: Sequence[str],
    key: str | None,
) -> dict[str, str | None]:
    """Return the columns of fields, as --map and --key name them."""
    fields: dict[str, str | None] = {}
    named = [_pair(word) for word in pairs]
    if key is not None:
        named.append((_id_field(what), key))
    for field, column in named:
        if field in fields:
            raise misuse("a field is given twice", "--map")
        fields[field] = column
    return fields


def _id_field(what: str) -> str:
    """Return the field that identifies the items of a list."""
    if what.startswith("webhooks"):
        return "id"
    return "uuid"


def _pair(word: str) -> tuple[str, str | None]:
    field, sign, column = word.partition("=")
    if not (field and sign):
        raise misuse(f"{word!r}: write FIELD=COLUMN", "--map")
    return field, column or None


def _zone(name: str | None) -> tzinfo | None:
    from zoneinfo import ZoneInfo, available_timezones

    try:
        if name is None:
            return None
        return ZoneInfo(name)
    except (ValueError, KeyError, OSError):
        if not available_timezones():  # Windows has none of its own
            words = "this system has no time zones. Install the package tzdata"
            raise misuse(words, "--zone") from None
        raise misuse(f"{name}: is no known time zone", "--zone") from None


def _plain(each: Difference) -> WireObject:
    plain: WireObject = {"difference": str(each.kind)}
    if each.key is not None:
        plain["key"] = each.key
    if each.line is not None:
        plain["line"] = each.line
    if each.note:
        plain["note"] = each.note
    if each.fields:
        plain["fields"] = [part._asdict() for part in each.fields]
    return plain


def _lines(each: Difference) -> list[list[str]]:
    """Return the lines of a table: one for each field.  White space in a key is shown as ␣."""
    from invsvc_async.export.files import text_of

    head = [str(each.kind), re.sub(r"\s", "␣", each.key or ""), text_of(each.line)]
    if not each.fields:
        return [[*head, "", each.note, ""]]
    return [
        [*head, part.field, text_of(part.yours), text_of(part.theirs)]
        for part in each.fields
    ]


def _write_report(
    path: Path,
    title: str,
    found: Comparison,
    kept: list[Difference],
) -> None:
    from invsvc_async.batch.reports.html import listing_page
    from invsvc_async.storage.private_file import write_private

    lines = chain.from_iterable(map(_lines, kept))
    page = listing_page(
        title, _words(found, len(kept)), _counts(found).items(), _TITLES, lines
    )
    write_private(path, page)


def _counts(found: Comparison) -> dict[str, int]:
    counts = {"rows": found.rows_read}
    if found.rows_outside:
        counts["rows outside"] = found.rows_outside
    counts["items"] = found.items_read
    return counts | {str(kind): count for kind, count in found.counts.items()}


def _words(found: Comparison, shown: int) -> str:
    words = ", ".join(f"{name}: {count:,}" for name, count in _counts(found).items())
    if not found.counts:
        words += ". No difference"
    words += f". Compared: {', '.join(sorted(filter(None, found.columns.values())))}"
    ignored = [column for column, path in found.columns.items() if not path]
    if ignored:
        words += f". Not compared: {', '.join(ignored)}"
    more = found.counts.total() - shown
    if more > 0:
        words += f". {more:,} more are not shown: --json prints them all"
    if not found.complete:
        words += ". There may be others: the list is cut off, or changes all the time"
    return words
