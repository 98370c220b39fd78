"""
Single reads of a deployment, and detection of the query parameters that a list honours, by their effect.

A name is honoured if its effect shows: a page of one item, a reversed list, nothing after the year 2100 but
something after 2001.  If only an invalid value is rejected with 400, the name is known, but not certain.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import attrs

from invsvc_async.api.json_values import is_object
from invsvc_async.api.operations import CLIENT_REQUEST, INVOICES_EGRESS
from invsvc_async.codec.exact_json import WireObject
from invsvc_async.errors import InvsvcError, ServiceError
from invsvc_async.reads import retry
from invsvc_async.transport.client_core import ClientOptions, Request

Sign = Literal["shown", "refused", "accepted", "ignored", "unclear"]

_NAMES = {
    "limit": "limit per_page page_size pageSize size",
    "cursor": "next cursor starting_after next_cursor page_token",
    "order_by": "order_by orderBy sort_by sort",
    "order": "order direction sort_order order_direction",
    "created_after": "created_after created[gte] created_at[gte] created_gte createdAfter created_from "
    "start_date from",
    "created_before": "created_before created[lte] created_at[lte] created_lte createdBefore created_to "
    "end_date to",
    "client_id": "client_id clientId client customer_id",
    "client_tax_id": "client_tax_id clientTaxId tax_id rfc",
    "page": "page page_number pageNumber",
}
CANDIDATES: Final[dict[str, tuple[str, ...]]] = {
    role: tuple(names.split()) for role, names in _NAMES.items()
}
# parameters of the table-database listing
IMPORTS: Final[dict[str, tuple[str, ...]]] = {
    "dbtable_limit": CANDIDATES["limit"],
    "dbtable_state": ("state", "status", "mapping_state", "filter"),
}


class _Values(NamedTuple):
    """Values of a parameter: an invalid value, a valid value, and a value that must empty the list."""

    invalid: str = ""
    valid: str = ""
    emptying: str = ""


_UNKNOWN: Final = "invsvc_doctor"  # a name that no service knows
_IN_2001 = "1000000000000"
_IN_2100 = "4102444800000"  # ms
_VALUES: Final = {
    "limit": _Values("0", "1"),
    "cursor": _Values("%"),
    "order_by": _Values(_UNKNOWN, "timestamp"),
    "order": _Values(_UNKNOWN, "asc"),
    "created_after": _Values(_UNKNOWN, _IN_2001, _IN_2100),
    "created_before": _Values(_UNKNOWN, _IN_2100, _IN_2001),
    "client_id": _Values("", "none", _UNKNOWN),
    "client_tax_id": _Values("", "none", _UNKNOWN),
    "page": _Values("0", "1"),
    "dbtable_limit": _Values("0", "1"),
    "dbtable_state": _Values(_UNKNOWN, "active"),
}
# fields of an invoice's client
_CLIENT: Final = {"client_id": "id", "client_tax_id": "tax_id"}
_WITHOUT_EFFECT: Final = ("page", "dbtable_state")  # which no list shows
_REASONS: Final = {
    "shown": "its effect shows",
    "refused": "an invalid value is rejected",
    "accepted": "accepted, while unknown parameters are rejected",
}


@attrs.frozen(kw_only=True)
class ReadResult:
    """Result of one read; ``status`` is ``None`` without a usable answer, and ``error`` has the reason."""

    status: int | None
    items: list[WireObject] = attrs.field(factory=list[WireObject])
    next: str | None = None
    own: bool = True  # the service's own envelope
    error: str = ""

    @property
    def words(self) -> str:
        """The status and the text of an error."""
        if self.status:
            return f"HTTP {self.status} {self.error}"
        return self.error

    def item(self, name: str) -> Any:
        """Return a field of the first item; ``None`` if there is no item."""
        if self.items:
            return self.items[0].get(name)
        return None

    @property
    def ids(self) -> list[Any]:
        """Ids of the items."""
        return [item.get("uuid") for item in self.items]


# reads a list with a query
ReadList: TypeAlias = Callable[[Mapping[str, str]], Awaitable[ReadResult]]


@attrs.define
class Prober:
    """Reads through one client, with the duration of each in seconds."""

    view: ClientOptions
    seconds: list[float] = attrs.field(factory=list[float])

    async def invoices(self, query: Mapping[str, str]) -> ReadResult:
        """Read a page of egress invoices; parameters have their wire names."""
        return await self.read(
            Request(
                operation=INVOICES_EGRESS,
                query=query,
                team=self.view.team,
            )
        )

    async def path(self, path: str, query: Mapping[str, str]) -> ReadResult:
        """Read any path."""
        team = self.view.team
        return await self.read(
            Request(
                operation=CLIENT_REQUEST,
                raw_path=path,
                method="GET",
                query=query,
                team=team,
            )
        )

    async def read(self, request: Request) -> ReadResult:
        """Read with the client's own retries."""
        clock = self.view.core.clock
        begun = clock.now()
        try:
            envelope = await retry.read(self.view, request)
        except ServiceError as error:
            text = f"{error.code or ''} {error.message or ''}".strip()
            return ReadResult(
                status=error.status,
                own=error.own_envelope,
                error=text,
            )
        except InvsvcError as error:
            return ReadResult(
                status=None,
                own=False,
                error=str(error),
            )
        self.seconds.append(clock.now() - begun)
        items = _objects_in(envelope.data)
        return ReadResult(
            status=200,
            items=items,
            next=envelope.next,
        )


def _objects_in(payload: object) -> list[WireObject]:
    """Return the items of a list, which may be nested in a member ``data``."""
    items = payload.get("data") if is_object(payload) else payload
    if not isinstance(items, list):
        return []
    return [dict(each) for each in items if is_object(each)]


@attrs.frozen(kw_only=True)
class Named:
    """
    Result for one parameter.

    ``name`` is the one that is honoured.  If it is ``None`` and ``certain`` is true, none of the candidates
    is. If ``certain`` is false, it could not be determined, for the reason in ``why``.
    """

    role: str
    name: str | None
    certain: bool
    why: str


@attrs.frozen
class _ProbedList:
    """The list under test: its items without parameters, and whether it rejects unknown parameters."""

    ask: ReadList
    plain: ReadResult
    refuses_unknown: bool
    limit: str | None = None


def tell_nobody(words: str) -> None:
    """Ignore the words for a check that begins."""
    del words


async def find_names(
    ask: ReadList,
    candidates: Mapping[str, tuple[str, ...]] = CANDIDATES,
    *,
    on_check: Callable[[str], object] = tell_nobody,
) -> list[Named]:
    """
    Probe each of *candidates* in turn; about thirty reads if the assumed names are right.

    *on_check* is called with a few words for each.
    """
    plain = await ask({})
    if plain.status != 200:
        why = f"the list answered {plain.status or 'nothing'}: {plain.error}"
        return [
            Named(
                role=role,
                name=None,
                certain=False,
                why=why,
            )
            for role in candidates
        ]
    listing = _ProbedList(ask, plain, (await ask({_UNKNOWN: "1"})).status == 400)
    found: list[Named] = []
    for role, names in candidates.items():
        on_check(f"parameter: {role}")
        named = await _find(listing, role, names)
        found.append(named)
        if role == "limit":
            listing = attrs.evolve(listing, limit=named.name)
    return found


async def _find(
    listing: _ProbedList,
    role: str,
    names: tuple[str, ...],
) -> Named:
    known = None  # a name that is accepted, but shows no effect
    unclear = False
    for name in names:
        sign = await _sign(listing, role, name)
        if sign == "unclear":
            unclear = True
        if sign not in _REASONS:
            continue
        if sign == "shown" or role in _WITHOUT_EFFECT:
            return Named(
                role=role,
                name=name,
                certain=True,
                why=_REASONS[sign],
            )
        if known is None:
            why = f"{_REASONS[sign]}, but no effect shows"
            known = Named(
                role=role,
                name=name,
                certain=False,
                why=why,
            )
    if known is not None:
        return known
    if unclear:
        return Named(
            role=role,
            name=None,
            certain=False,
            why="too few records to show an effect",
        )
    why = f'none of {", ".join(names)} has an effect. Set the name, or "" to refuse its use'
    return Named(
        role=role,
        name=None,
        certain=True,
        why=why,
    )


async def _sign(listing: _ProbedList, role: str, name: str) -> Sign:
    """Return whether *name* has an effect, or else what the status of an answer says about it."""
    reaction = await _reaction(listing, role, name)
    if reaction == "ignored":
        return "ignored"
    effect = await _effect(listing, role, name)
    if effect == "shown" or reaction not in _REASONS:
        return effect
    return reaction


async def _reaction(
    listing: _ProbedList,
    role: str,
    name: str,
) -> Sign:
    """Return what the status of an answer says about *name*; "unclear" if it says nothing."""
    value = _VALUES[role].valid if listing.refuses_unknown else _VALUES[role].invalid
    if not value:
        return "unclear"
    with_filter = {"metadata.invsvc_doctor": "1"} if role == "page" else {}
    status = (await listing.ask({**with_filter, name: value})).status
    if listing.refuses_unknown and status == 200:
        return "accepted"
    if status != 400:
        return "unclear"
    if listing.refuses_unknown:
        return "ignored"
    return "refused"


async def _effect(
    listing: _ProbedList,
    role: str,
    name: str,
) -> Sign:
    """Return whether *name* has the effect of its *role*; "unclear" if the list is too short to show one."""
    items = listing.plain.items
    if _VALUES[role].emptying and items:
        return await _effect_of_filter(listing, role, name)
    match role:
        case "limit" | "dbtable_limit" if len(items) > 1:
            answer = await listing.ask({name: "1"})
            return _sign_of(answer, shown=len(answer.items) == 1)
        case "cursor":
            return await _effect_of_cursor(listing, name)
        case "order" if len(items) > 1:
            up = await listing.ask({name: "asc"})
            down = await listing.ask({name: "desc"})
            return _sign_of(up, down, shown=up.ids != down.ids)
        case "order_by":
            by_name = await listing.ask({name: "name"})
            by_time = await listing.ask({name: "timestamp"})
            is_same = by_name.ids == by_time.ids  # which proves nothing
            if is_same:
                return "unclear"
            return _sign_of(by_name, by_time, shown=True)
        case _:
            return "unclear"


async def _effect_of_filter(
    listing: _ProbedList,
    role: str,
    name: str,
) -> Sign:
    """Return whether the filter *name* leaves out what does not match, and keeps what does."""
    values = _VALUES[role]
    empty = await listing.ask({name: values.emptying})
    matching: object = values.valid
    if role in _CLIENT:
        client = listing.plain.item("client")
        matching = client.get(_CLIENT[role]) if is_object(client) else None
    if not isinstance(matching, str) or empty.status != 200 or empty.items:
        return _sign_of(empty, shown=not empty.items)
    full = await listing.ask({name: matching})
    return _sign_of(full, shown=bool(full.items))


async def _effect_of_cursor(listing: _ProbedList, name: str) -> Sign:
    """Return whether the cursor *name* leads to another page."""
    size = {listing.limit: "1"} if listing.limit else {}
    first = await listing.ask(size)
    if first.next is None or not first.items:
        return "unclear"
    second = await listing.ask({**size, name: first.next})
    return _sign_of(second, shown=second.ids != first.ids)


def _sign_of(*answers: ReadResult, shown: bool) -> Sign:
    if any(answer.status != 200 for answer in answers):
        return "unclear"
    if shown:
        return "shown"
    return "ignored"
