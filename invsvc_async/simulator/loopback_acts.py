"""
What a page of this machine may ask to be done: requests that only the page itself can send.

A page that is shown begins a session, whose token stands in its script.  A request that changes something is
a POST that has this token in a header, which no other site's page, form or link can send.  What one session
was shown and asked to confirm, no other one can.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Final

from invsvc_async.simulator import replies
from invsvc_async.simulator.json_records import is_object, read_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiohttp import web

    from invsvc_async.simulator.json_records import Json

    # takes the session's token, and the members of the request
    Act = Callable[[str, Mapping[str, Json]], Awaitable[Json]]

SESSION_HEADER: Final = "X-Page-Session"
_MOST: Final = 32  # sessions of one page, of which the oldest ends if there is one more
_IDLE: Final = 12 * 3600.0  # s after its last request, after which a session ends
LONGEST: Final = 64 << 10  # bytes of a request


class ActRefusedError(Exception):
    """What was asked for is not done: it cannot be done, or is no longer what was shown."""


class Sessions:
    """The sessions of one page; *steady* is a clock in seconds."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._used: dict[str, float] = {}  # by token, the last one used last

    def begin(self) -> str:
        """Begin a session, and return its token."""
        token = secrets.token_urlsafe(24)
        self._used[token] = self._steady()
        while len(self._used) > _MOST:
            del self._used[next(iter(self._used))]
        return token

    def goes_on(self, token: str) -> bool:
        """Return whether *token* is that of a session; if so, it is used."""
        used = self._used.pop(token, None)
        if used is None or self._steady() - used > _IDLE:
            return False
        self._used[token] = self._steady()
        return True


def acting(
    act: Act,
    sessions: Sessions,
    headers: Mapping[str, str],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """
    Return a handler of POST requests that answers what *act* returns, as JSON.

    Without the token of a session it answers 403, to a request that is not one JSON object 400, and 409 to
    what *act* refuses.
    """

    async def answer(request: web.Request) -> web.Response:
        token = request.headers.get(SESSION_HEADER, "")
        if not sessions.goes_on(token):
            words = "The page is not of this session. Load it again."
            return replies.answer(403, {"problem": words}, dict(headers))
        try:
            told = await act(token, await _asked_in(request))
        except ActRefusedError as error:
            return replies.answer(409, {"problem": str(error)}, dict(headers))
        except (ValueError, TypeError, KeyError) as error:
            return replies.answer(400, {"problem": str(error)}, dict(headers))
        return replies.answer(200, told, dict(headers))

    return answer


async def _asked_in(request: web.Request) -> Mapping[str, Json]:
    """Return the members of a request, whose type must be that of JSON: no form can send it."""
    if request.content_type != "application/json":
        raise ValueError("the request must be application/json")
    asked = read_json(await request.read())
    if not is_object(asked):
        raise ValueError("the request must be a JSON object")
    return asked
