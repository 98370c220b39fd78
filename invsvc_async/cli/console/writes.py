"""The pages of a batch, an outbox or a journal: its writes, and what a person may change of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from invsvc_async.batch.entries import name_of, workers_of
from invsvc_async.batch.reports.live import plain_worker
from invsvc_async.cli.console.confirmations import LIMITS, NOT_OFFERED, Change, limit_in
from invsvc_async.cli.console.page_texts import plain_facts, plain_table, visible_texts
from invsvc_async.cli.console.write_changes import BUTTONS, WriteChanges, changes_of
from invsvc_async.cli.store_views import (
    UNACKNOWLEDGED,
    facts_in_words,
    facts_of,
    listing_of,
    workers_table,
)
from invsvc_async.durable.store.noted import Chosen
from invsvc_async.reconcile.enums import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.batch.reports.not_applied import Group
    from invsvc_async.cli.store_options import StoreKind, StoreOptions
    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.durable.entries import Entries
    from invsvc_async.durable.entry import Entry

    Seen = dict[str, Entry]  # by the key that the store has

STATES: Final = ("open", UNACKNOWLEDGED, *map(str, Verdict))
_SHOWN: Final = 20  # writes of one group of a report


class WriteConsole:
    """The views and changes of the store at *at*, of which *entries* are open for reading."""

    def __init__(self, at: StoreOptions, entries: Entries) -> None:
        self._at = at
        self._kind: StoreKind = at.kind
        self._entries = entries
        self._changes = WriteChanges(at, entries)

    async def change(self, asked: Mapping[str, object]) -> Change:
        """Return the change that is asked for, of the writes as they are now."""
        return await self._changes.change(asked)

    # --- views

    async def data(self, query: Mapping[str, str]) -> WireObject:
        """Return what the view that *query* names shows."""
        match query.get("view", "list"):
            case "about":
                return self._about()
            case "list":
                return await self._list(query)
            case "show":
                return await self._show(json.loads(query["name"]))
            case "report":
                return await self._report()
            case "workers":
                return await self._workers()
            case other:
                raise ValueError(f"view: there is no {other!r}")

    def _about(self) -> WireObject:
        views = ["list", "report", "watch"]
        if self._entries.store.is_shared:
            views.append("workers")
        return {
            "kind": self._kind.name,
            "name": visible_texts([name_of(self._at.place)])[0],
            "states": ["", *STATES],
            "limits": [*LIMITS],
            "views": views,
            "changes": BUTTONS,
        }

    async def _list(self, query: Mapping[str, str]) -> WireObject:
        state = query.get("state") or None
        limit = limit_in(query)
        if state not in {None, *STATES}:
            raise ValueError(NOT_OFFERED)
        found = await listing_of(self._entries, limit, Chosen(state=state))
        return {
            "table": plain_table(found.table(namespace=found.has_namespaces)),
            "names": found.names,
            "states": [str(row["state"]) for row in found.rows],
            "words": found.words("show more, or choose a state"),
        }

    async def _show(self, name: str) -> WireObject:
        entry = await self._entries.entry(name)
        if entry is None:
            return {"gone": "There is no such write any more."}
        facts = await facts_of(self._kind, self._entries, entry)
        return {
            "title": visible_texts([self._entries.key_of(entry)])[0],
            "facts": plain_facts(facts_in_words(facts)),
            "state": str(facts["state"]),
            "changes": changes_of(self._kind, entry),
        }

    async def _report(self) -> WireObject:
        from invsvc_async.batch.reports.summary import report_of
        from invsvc_async.cli.report_views import operations_table, report_in_words

        found = await report_of(self._entries, name_of(self._at.place), self._kind.name)
        return {
            "table": plain_table(operations_table(found)),
            "facts": plain_facts(report_in_words(found)),
            "groups": [_plain_group(each) for each in found.groups],
        }

    async def _workers(self) -> WireObject:
        found = [plain_worker(each) for each in await workers_of(self._entries)]
        return {"table": plain_table(workers_table(found))}


def _plain_group(group: Group) -> WireObject:
    """Return a group of the report as JSON values, with the first of its writes."""
    from invsvc_async.batch.reports.not_applied import words_of

    told: dict[str, str] = {
        "verdict": str(group.verdict),
        "cause": group.cause,
        "advice": group.advice,
    }
    plain: WireObject = dict(zip(told, visible_texts(told.values()), strict=True))
    plain["count"] = group.count
    plain["command"] = None
    if group.command is not None:
        plain["command"] = visible_texts([group.command])[0]
    plain["writes"] = [
        visible_texts([each.key, f"{each.operation}: {words_of(each)}"])
        for each in group.results[:_SHOWN]
    ]
    return plain
