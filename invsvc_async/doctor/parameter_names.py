"""
Find out which query parameters a list honours, by what they change; never take silence for a yes.

A name is honoured if its effect shows (a page of one, a list turned round, nothing after the year 2100), or
if a senseless value of it is refused with 400 while an unknown parameter is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import attrs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from invsvc_async.doctor.probe import Answer, Ask

__all__ = ["CANDIDATES", "IMPORTS", "Named", "find_names"]

Sign = Literal["shown", "refused", "accepted", "ignored", "unclear"]

CANDIDATES: Final[dict[str, tuple[str, ...]]] = {
    "limit": ("limit", "per_page", "page_size", "pageSize", "size"),
    "cursor": ("next", "cursor", "starting_after", "next_cursor", "page_token"),
    "order_by": ("order_by", "orderBy", "sort_by", "sort"),
    "order": ("order", "direction", "sort_order", "order_direction"),
    "created_after": ("created_after", "createdAfter", "created_from", "start_date", "from"),
    "created_before": ("created_before", "createdBefore", "created_to", "end_date", "to"),
    "client_id": ("client_id", "clientId", "client", "customer_id"),
    "client_tax_id": ("client_tax_id", "clientTaxId", "tax_id", "rfc"),
    "page": ("page", "page_number", "pageNumber"),
}
IMPORTS: Final[dict[str, tuple[str, ...]]] = {  # of the table-database listing
    "dbtable_limit": CANDIDATES["limit"],
    "dbtable_state": ("state", "status", "mapping_state", "filter"),
}
_STRANGE: Final = "invsvc_doctor"  # a name that no service knows
_SENSELESS: Final = {
    "limit": "0", "cursor": "%", "order_by": _STRANGE, "order": _STRANGE, "created_after": _STRANGE,
    "created_before": _STRANGE, "page": "0", "dbtable_limit": "0", "dbtable_state": _STRANGE,
}  # fmt: skip
_SENSIBLE: Final = {
    "limit": "1", "order_by": "timestamp", "order": "asc", "created_after": "0",
    "created_before": "4102444800000", "client_id": "none", "client_tax_id": "none", "page": "1",
    "dbtable_limit": "1", "dbtable_state": "active",
}  # fmt: skip
_NOTHING: Final = {  # values for which the list must be empty; times in ms: the year 2100, and 2001
    "created_after": "4102444800000", "created_before": "1000000000000", "client_id": _STRANGE,
    "client_tax_id": _STRANGE,
}  # fmt: skip
_WORDS: Final = {
    "shown": "its effect shows",
    "refused": "a senseless value is refused",
    "accepted": "it is taken where unknown parameters are refused",
}


@attrs.frozen(kw_only=True)
class Named:
    """
    What was found of one parameter.

    ``name`` is the one that is honoured; ``None`` where no known name is, if ``certain``.  Otherwise nothing
    could show it, and ``why`` says what was missing.
    """

    role: str
    name: str | None
    certain: bool
    why: str


@attrs.frozen
class _Ward:
    """The list under examination: what it holds unasked, and whether it refuses what it does not know."""

    ask: Ask
    plain: Answer
    refuses_unknown: bool
    limit: str | None = None


async def find_names(ask: Ask, candidates: Mapping[str, tuple[str, ...]] = CANDIDATES) -> list[Named]:
    """Ask for each of *candidates* in turn: about twenty reads where the assumed names are right."""
    plain = await ask({})
    if plain.status != 200:
        why = f"the list answered {plain.status or 'nothing'}: {plain.error}"
        return [Named(role=role, name=None, certain=False, why=why) for role in candidates]
    ward = _Ward(ask, plain, (await ask({_STRANGE: "1"})).status == 400)
    found: list[Named] = []
    for role, names in candidates.items():
        named = await _find(ward, role, names)
        found.append(named)
        if role == "limit":
            ward = attrs.evolve(ward, limit=named.name)
    return found


async def _find(ward: _Ward, role: str, names: tuple[str, ...]) -> Named:
    unclear = False
    for name in names:
        sign = await _sign(ward, role, name)
        if sign in _WORDS:
            return Named(role=role, name=name, certain=True, why=_WORDS[sign])
        unclear = unclear or sign == "unclear"
    tried = ", ".join(names)
    why = "too few records to see an effect" if unclear else f"none of {tried} has an effect"
    return Named(role=role, name=None, certain=not unclear, why=why)


async def _sign(ward: _Ward, role: str, name: str) -> Sign:
    with_filter = {"metadata.invsvc_doctor": "1"} if role == "page" else {}
    if ward.refuses_unknown:
        if role not in _SENSIBLE:
            return await _effect(ward, role, name)
        answer = await ward.ask({**with_filter, name: _SENSIBLE[role]})
        return "accepted" if answer.status == 200 else "ignored"
    if role in _SENSELESS and (await ward.ask({**with_filter, name: _SENSELESS[role]})).status == 400:
        return "refused"
    return await _effect(ward, role, name)


async def _effect(ward: _Ward, role: str, name: str) -> Sign:
    if role in _NOTHING:
        if not ward.plain.items:
            return "unclear"
        answer = await ward.ask({name: _NOTHING[role]})
        return _told(answer, shown=not answer.items)
    effect = _EFFECTS.get(role)
    return "unclear" if effect is None else await effect(ward, name)


def _told(answer: Answer, *, shown: bool) -> Sign:
    if answer.status != 200:
        return "unclear"
    return "shown" if shown else "ignored"


async def _limited(ward: _Ward, name: str) -> Sign:
    if len(ward.plain.items) < 2:
        return "unclear"
    answer = await ward.ask({name: "1"})
    return _told(answer, shown=len(answer.items) == 1)


async def _followed(ward: _Ward, name: str) -> Sign:
    size = {ward.limit: "1"} if ward.limit else {}
    first = await ward.ask(size)
    if first.next is None or not first.items:
        return "unclear"
    second = await ward.ask({**size, name: first.next})
    return _told(second, shown=second.ids != first.ids)


async def _turned(ward: _Ward, name: str) -> Sign:
    if len(ward.plain.items) < 2:
        return "unclear"
    up, down = await ward.ask({name: "asc"}), await ward.ask({name: "desc"})
    return _told(up, shown=up.ids != down.ids)


async def _sorted(ward: _Ward, name: str) -> Sign:
    by_name, by_time = await ward.ask({name: "name"}), await ward.ask({name: "timestamp"})
    return "shown" if by_name.status == 200 and by_name.ids != by_time.ids else "unclear"


_EFFECTS: Final[dict[str, Callable[[_Ward, str], Awaitable[Sign]]]] = {
    "limit": _limited, "dbtable_limit": _limited, "cursor": _followed, "order": _turned, "order_by": _sorted,
}  # fmt: skip
