"""
What the client's own writes and reads have shown, as evidence for its next writes.

Memory is bounded by dropping old entries.  Then fewer writes can be settled, but none wrongly.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Raw, Struct, field

from invsvc_async.codec.exact_json import holds_broken, loads, salvage
from invsvc_async.errors import UnreadableResponseError
from invsvc_async.reconcile.compare import is_time

if TYPE_CHECKING:
    from collections.abc import Hashable

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.kinds import Kind

__all__ = ["LastState", "Listed", "OwnWrites", "UrlIds", "milliseconds", "sound", "version_of"]

MOST_BYTES = 8 * 2**20  # total length of the answers from which states are kept
MOST_URLS = 2000
MOST_TEAMS = 1000  # whose last list is kept
_NO_TIME = 10**15  # ms: later than any webhook
IDS_OF_A_URL = 512


def version_of(state: Wire) -> int | None:
    """Return when a state (a model or wire data) was last changed, in server ms; ``None`` if not known."""
    at = state.get("last_updated") if isinstance(state, dict) else getattr(state, "last_updated", None)
    if isinstance(at, datetime):
        return milliseconds(at)
    return int(at) if is_time(at) else None


def milliseconds(at: datetime) -> int:
    """Return *at* in wire form, epoch ms."""
    return round(at.timestamp() * 1000)


def sound(state: Wire) -> Wire:
    """
    Return wire data without the members that no parser accepts, such as a number of a million digits.

    An intent that has one could not be read back.
    """
    if not holds_broken(state):
        return state
    members = state.items() if isinstance(state, dict) else ()
    return {name: value for name, value in members if not holds_broken(value)} or None


class LastState(Struct, frozen=True, gc=False):
    """
    The state of a resource in the last answer that showed it, which arrived at *ended* (local s).

    ``shown`` is its JSON, or wire data; an empty dict if the resource was gone.  ``stamp`` is the time in the
    answer (server ms), ``weight`` the length of the answer in bytes, ``team`` the one that the request named.
    """

    shown: Wire | Raw
    ended: float
    stamp: int | None
    weight: int
    team: str | None = None

    @property
    def state(self) -> Wire:
        """The wire form, without members that no parser accepts; ``None`` if it is no object."""
        shown = self.shown
        if not isinstance(shown, Raw):
            return shown
        try:
            return loads(shown)
        except UnreadableResponseError:
            return sound(salvage(shown))


class UrlIds(Struct, frozen=True):
    """The ids of webhooks of one URL, from answers.  Some created up to ``forgotten_until`` are missing."""

    ids: tuple[tuple[str, int | None], ...] = ()  # with the times of creation, server ms
    forgotten_until: int | None = None

    def shortened(self, kept: int) -> UrlIds:
        """Return a copy with only the last *kept* ids."""
        cut = len(self.ids) - kept
        dropped = [_NO_TIME if at is None else at for _, at in self.ids[:cut]]
        return UrlIds(self.ids[cut:], max([*dropped, self.forgotten_until or 0]))

    def created_since(self, earliest: float | None) -> set[str]:
        """Return the ids of the webhooks that may have been created at *earliest* (server s) or later."""
        if earliest is None:
            return {webhook_id for webhook_id, _ in self.ids}
        return {known for known, at in self.ids if at is None or at / 1000 >= earliest}


class Listed(Struct):
    """The ids in a list as the service returned it."""

    many: int
    _items: list[Wire]  # until the ids are asked for
    _ids: dict[str, set[str]] | None = None

    def ids(self, kind: Kind, body: Wire) -> set[str]:
        """Return the ids of what could be mistaken for the effect of a create of *kind* with *body*."""
        if self._ids is None:
            self._ids, self._items = kind.ids_alike(self._items), []
        alike = kind.alike(body)
        return set() if alike is None else self._ids.get(alike, set())


class OwnWrites(Struct, eq=False):
    """The states that the answers and reads of one client showed last."""

    _states: OrderedDict[Hashable, LastState] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _urls: OrderedDict[str, UrlIds] = field(default_factory=OrderedDict)
    _other_urls: UrlIds = field(default_factory=UrlIds)
    _lists: dict[Hashable, Listed] = field(default_factory=dict)

    # --- the last state of a resource

    def learn(
        self,
        thing: Hashable,
        state: Wire | Raw,
        started: float,
        ended: float,
        *,
        stamp: int | None = None,
        weight: int = 0,
        written: bool = False,
        team: str | None = None,
    ) -> None:
        """
        Store *state*, from the answer to a request from *started* to *ended*, if it is the latest.

        *written*: the request was a write of this client.  A read that overlaps the stored answer is ignored,
        because it is unknown which state is the later one.
        """
        last = self._states.get(thing)
        if last is not None:
            if started < last.ended and not written:
                return
            self._bytes -= last.weight
            self._states.move_to_end(thing)
        self._states[thing] = LastState(state, ended, stamp, weight, team)
        self._bytes += weight
        while self._bytes > MOST_BYTES or len(self._states) > MOST_BYTES // 1024:
            _, oldest = self._states.popitem(last=False)
            self._bytes -= oldest.weight

    def forget(self, thing: Hashable) -> None:
        """Forget the state of *thing*, because an ambiguous write may have changed it."""
        last = self._states.pop(thing, None)
        if last is not None:
            self._bytes -= last.weight

    def last(self, thing: Hashable, team: str | None = None) -> LastState | None:
        """
        Return the last known state of *thing*, also if it was seen under another name of the *team*.

        That another team does not have it says nothing.
        """
        last = self._states.get(thing)
        return None if last is not None and last.team != team and last.shown == {} else last

    # --- webhooks, by URL

    def created(self, url_key: str, webhook_id: str, created_at: Wire) -> None:
        """Store the id and the time of creation (server ms) from the answer to a create of this client."""
        known = self._urls.pop(url_key, self._other_urls)
        created = (webhook_id, int(created_at) if is_time(created_at) else None)
        known = UrlIds((*known.ids, created), known.forgotten_until)
        self._urls[url_key] = known if len(known.ids) <= IDS_OF_A_URL else known.shortened(IDS_OF_A_URL // 2)
        while len(self._urls) > MOST_URLS:
            _, oldest = self._urls.popitem(last=False)
            gone, others = oldest.shortened(0).forgotten_until, self._other_urls.forgotten_until
            self._other_urls = UrlIds((), max(gone or 0, others or 0))

    def ids(self, url_key: str) -> UrlIds:
        """Return the ids from answers to creates of that URL."""
        return self._urls.get(url_key, self._other_urls)

    def listed(self, of: Hashable, items: list[Wire]) -> None:
        """Store the latest list (wire form) of what *of* stands for: a read, and the team that it named."""
        self._lists.pop(of, None)
        self._lists[of] = Listed(len(items), items)
        if len(self._lists) > MOST_TEAMS:
            del self._lists[next(iter(self._lists))]

    def last_list(self, of: Hashable) -> Listed | None:
        """Return the latest list."""
        return self._lists.get(of)
