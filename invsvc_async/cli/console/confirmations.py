"""Changes that a person is asked to confirm, each once, on the page where they were asked for."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from invsvc_async.cli.console.page_texts import plain_facts, visible_texts
from invsvc_async.errors import InvsvcError, JournalError
from invsvc_async.simulator.loopback_acts import ActRefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from invsvc_async.codec.exact_json import WireObject

    Facts = Sequence[tuple[str, str]]

LIMITS: Final = (100, 1000)  # writes or events of a list
NOT_OFFERED = "state, limit: must be one of those that `about` has"
CHANGED = "It has changed since you were asked. Look at it again. Nothing was done"
_MOST: Final = 100  # that wait, of which the oldest is dropped if there is one more
_PATIENCE: Final = 300.0  # s, after which a confirmation is no longer valid
_GONE = (
    "This was confirmed already, or too long ago, or on another page. Ask again. "
    "Nothing was done."
)


@attrs.frozen(kw_only=True)
class Change:
    """
    What would be done, and to what, as it is *now*; *do* does it, and returns what it has done in words.

    *do* raises ActRefusedError if what it would change is no longer as it was shown.
    """

    title: str
    will: Sequence[str]
    button: str
    now: Mapping[str, Facts]  # by what people call it
    do: Callable[[], Awaitable[str]]

    def plain(self) -> WireObject:
        """Return what the page shows of it, as JSON values."""
        [title] = visible_texts([self.title])
        now: list[WireObject] = [
            {"name": visible_texts([name])[0], "facts": plain_facts(facts)}
            for name, facts in self.now.items()
        ]
        will = visible_texts(self.will)
        return {"title": title, "will": will, "button": self.button, "now": now}


class Console(Protocol):
    """What the pages of one kind of store show and ask."""

    async def data(self, query: Mapping[str, str]) -> WireObject:
        """Return what a view shows."""
        ...

    async def change(self, asked: Mapping[str, object]) -> Change:
        """
        Return the change that is asked for.

        Raises:
            ActRefusedError: It cannot be done.
            ValueError: The request does not say what is to be done, or to what.
        """
        ...


class Questions:
    """
    What the pages of *shown* are answered: views, and changes that wait to be confirmed.

    *steady* is a clock in seconds.
    """

    def __init__(
        self, shown: Console, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._shown = shown
        self._steady = steady
        self._waiting: dict[tuple[str, str], tuple[float, Change]] = {}

    async def data(self, query: Mapping[str, str]) -> WireObject:
        """Return what a view shows, or ``problem`` if the store cannot be read."""
        try:
            return await self._shown.data(query)
        except InvsvcError as error:
            return {"problem": visible_texts([str(error)])[0]}

    async def ask(self, session: str, asked: Mapping[str, object]) -> WireObject:
        """
        Return what the page of *session* shows of the change that is *asked* for, with a token to confirm it.

        Raises:
            ActRefusedError: It cannot be done.
            ValueError: The request does not say what is to be done, or to what.
        """
        try:
            change = await self._shown.change(asked)
        except JournalError as error:
            raise ActRefusedError(str(error)) from error
        token = secrets.token_urlsafe(24)
        self._waiting[session, token] = self._steady(), change
        while len(self._waiting) > _MOST:
            del self._waiting[next(iter(self._waiting))]
        return {"confirmation": token, **change.plain()}

    async def confirm(self, session: str, asked: Mapping[str, object]) -> WireObject:
        """
        Do what *session* was asked with a token, once; return what was done.

        Raises:
            ActRefusedError: There is no such question any more, or what it showed has changed.
        """
        token = str(asked.get("confirmation"))
        found = self._waiting.pop((session, token), None)
        if found is None or self._steady() - found[0] > _PATIENCE:
            raise ActRefusedError(_GONE)
        return {"done": visible_texts([await found[1].do()])[0]}


def limit_in(query: Mapping[str, str]) -> int:
    """Return how many a view is to list; raise ValueError if that is not one of ``LIMITS``."""
    limit = int(query.get("limit", LIMITS[0]))
    if limit not in LIMITS:
        raise ValueError(NOT_OFFERED)
    return limit


def names_in(asked: Mapping[str, object], most: int = 200) -> list[str]:
    """Return the names of what is to be changed; raise ValueError if there are none, or more than *most*."""
    names = asked.get("names")
    if not isinstance(names, list) or not _are_texts(names):
        raise ValueError("names: must be a list of texts")
    if not 1 <= len(names) <= most:
        raise ValueError(f"names: there must be 1 to {most}")
    return [*dict.fromkeys(names)]


def _are_texts(found: Iterable[object]) -> bool:
    return all(isinstance(each, str) for each in found)
