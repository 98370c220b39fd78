"""Changes that a person is asked to confirm, each once, on the page where they were asked for."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Final, Protocol, TypeGuard

import attrs

from invsvc_async.cli.console.page_texts import plain_facts, visible_texts
from invsvc_async.errors import InvsvcError, JournalError
from invsvc_async.simulator.loopback_acts import ActRefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from invsvc_async.codec.exact_json import WireObject

    Facts = Sequence[tuple[str, str]]

LIMITS: Final = (100, 1000)  # writes or events of a list
NOT_OFFERED = "state, limit: must be one of those that `about` has"
CHANGED = "It has changed since you were asked. Look at it again. Nothing was done"
_MOST: Final = 100  # changes that wait to be confirmed; one more drops the oldest
_PATIENCE: Final = 300.0  # s, after which a confirmation is no longer valid
_GONE = (
    "This was confirmed already, or too long ago, or on another page. Ask again. "
    "Nothing was done."
)


@attrs.frozen(kw_only=True)
class Change:
    """
    What would be done, and to what, in the state *now*; *do* does it, and returns a sentence for the page.

    *do* raises ActRefusedError if the state is no longer *now*.
    """

    title: str
    will: Sequence[str]
    button: str
    now: Mapping[str, Facts]  # by what people call it
    do: Callable[[], Awaitable[str]]

    def plain(self) -> WireObject:
        """Return what the page shows of the change, as JSON values."""
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
        Return the change that is *asked* for, of the things as they are now.

        Raises:
            ActRefusedError: The change cannot be made.
            ValueError: The request does not say what is to be done, or to what.
        """
        ...


class Questions:
    """
    The answers to the pages of *shown*: the data of views, and changes that wait to be confirmed.

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
        Return the wanted change, as the page of *session* shows it, and the token of its confirmation.

        Raises:
            ActRefusedError: The change cannot be made.
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
        Make the change of a token that *session* got, once; return what was done.

        Raises:
            ActRefusedError: The token is not valid any more, or the state has changed since.
        """
        token = str(asked.get("confirmation"))
        found = self._waiting.pop((session, token), None)
        if found is None:
            raise ActRefusedError(_GONE)
        asked_at, change = found
        if self._steady() - asked_at > _PATIENCE:
            raise ActRefusedError(_GONE)
        return {"done": visible_texts([await change.do()])[0]}


def with_left(done: str, left: int) -> str:
    """Return the sentence *done*, and one about the *left*, which were not changed."""
    if not left:
        return done
    return f"{done} {left:,} changed meanwhile, and stayed."


def limit_in(query: Mapping[str, str]) -> int:
    """Return how many a view is to list; raise ValueError if that is not one of ``LIMITS``."""
    limit = int(query.get("limit", LIMITS[0]))
    if limit not in LIMITS:
        raise ValueError(NOT_OFFERED)
    return limit


def names_in(asked: Mapping[str, object], most: int = 200) -> list[str]:
    """Return the names of what is to be changed; raise ValueError if there are none, or more than *most*."""
    names = asked.get("names")
    if not _are_texts(names):
        raise ValueError("names: must be a list of texts")
    if not 1 <= len(names) <= most:
        raise ValueError(f"names: there must be 1 to {most}")
    return [*dict.fromkeys(names)]


def _are_texts(names: object) -> TypeGuard[list[str]]:
    if not isinstance(names, list):
        return False
    return all(isinstance(each, str) for each in names)
