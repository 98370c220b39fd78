"""
The two invoice lists, in both list envelopes and with all filters of the specification.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from invsvc_async.simulator.calls import Answer, Call, invalid
from invsvc_async.simulator.json_records import Json, Record, json_text, read_json
from invsvc_async.simulator.validate import Query

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.simulator.state import State


def egress(state: State, call: Call) -> Answer:
    """List invoices of type E.  A metadata filter changes the envelope to numbered pages."""
    return _listed(state, call, "E", _egress_filters(state, call))


def payment_complements(state: State, call: Call) -> Answer:
    """List invoices of type P."""
    return _listed(state, call, "P", _common_filters(call))


def _listed(state: State, call: Call, kind: str, filters: list[Callable[[Record], bool]]) -> Answer:
    names = state.names
    query = Query(call.query)
    limit = query.whole(names["limit"], 10, 100)
    page = query.whole(names["page"], 1)
    name_first = query.choice(names["order_by"], "name", "timestamp") == "name"
    descending = query.choice(names["order"], "asc", "desc") != "asc"
    after, before = query.instant(names["created_after"]), query.instant(names["created_before"])
    for problem in ("status",) if kind == "E" else ():
        query.choice(problem, "valid", "canceled", "cancelled")
    query.check(state)

    def shown(invoice: Record) -> bool:
        created = invoice["created_at"]
        return (
            invoice["invoice_type"] == kind
            and (after is None or created >= after)
            and (before is None or created <= before)
            and all(keep(invoice) for keep in filters)
        )

    rows = [invoice for invoice in call.book.invoices.as_of(call.past).values() if shown(invoice)]

    def place(invoice: Record) -> tuple[Json, str]:
        return invoice["client"]["name"] if name_first else invoice["created_at"], invoice["uuid"]

    rows.sort(key=place, reverse=descending)
    if kind == "E" and _metadata_filters(call):
        return Answer(_numbered_page(state, rows, page, limit))
    return Answer(_cursor_page(state, call, rows, limit))


def _numbered_page(state: State, rows: list[Record], page: int, limit: int) -> dict[str, Json]:
    start = (page - 1) * limit
    return {
        "success": True,
        "message": "Invoices found",
        "data": rows[start : start + limit],
        "has_more": start + limit < len(rows),
        "total_results": len(rows),
        "page": page,
        "per_page": limit,
        "timestamp": state.clock.now_ms(),
    }


def _cursor_page(state: State, call: Call, rows: list[Record], limit: int) -> dict[str, Json]:
    start = _start(state, call.query.get(state.names["cursor"]), rows)
    shown = rows[start : start + limit]
    more = start + limit < len(rows)
    return {
        "success": True,
        "message": "Invoices found",
        "data": shown,
        "next": base64.urlsafe_b64encode(json_text([shown[-1]["uuid"]]).encode()).decode() if more else None,
        "has_more": more,
        "total_results": len(rows),
        "timestamp": state.clock.now_ms(),
    }


def _start(state: State, cursor: str | None, rows: list[Record]) -> int:
    if cursor is None:
        return 0
    try:
        (last,) = read_json(base64.urlsafe_b64decode(cursor))
        return next(index for index, row in enumerate(rows) if row["uuid"] == last) + 1
    except (ValueError, TypeError, StopIteration):
        raise invalid(state, [f"{state.names['cursor']}: is not a cursor of this list"]) from None


def _equals(name: str, wanted: str) -> Callable[[Record], bool]:
    return lambda invoice: invoice[name] is not None and str(invoice[name]) == wanted


def _of_client(name: str, wanted: str) -> Callable[[Record], bool]:
    return lambda invoice: invoice["client"][name] == wanted


def _has_metadata(name: str, wanted: str) -> Callable[[Record], bool]:
    def has(invoice: Record) -> bool:
        value = invoice["metadata"].get(name, ...)  # null is a value
        return value is not ... and (value if isinstance(value, str) else json_text(value)) == wanted

    return has


def _common_filters(call: Call) -> list[Callable[[Record], bool]]:
    wanted = call.query.get("idempotency_key")
    return [] if wanted is None else [_equals("idempotency_key", wanted)]


def _egress_filters(state: State, call: Call) -> list[Callable[[Record], bool]]:
    query, names = call.query, state.names
    filters = _common_filters(call)
    filters += [_has_metadata(name, wanted) for name, wanted in _metadata_filters(call).items()]
    for parameter, name in (("series", "series"), ("folio", "folio_number")):
        if parameter in query:
            filters.append(_equals(name, query[parameter]))
    for parameter, name in ((names["client_id"], "id"), (names["client_tax_id"], "tax_id")):
        if parameter in query:
            filters.append(_of_client(name, query[parameter]))
    if "status" in query:
        status = query["status"]
        filters.append(_equals("status", "canceled" if status == "cancelled" else status))
    return filters


def _metadata_filters(call: Call) -> dict[str, str]:
    marks = ("metadata.", "metadata_")
    return {name[9:]: value for name, value in call.query.items() if name.startswith(marks) and name[9:]}
