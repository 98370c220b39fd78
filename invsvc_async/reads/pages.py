"""
Lists in pages, with either of the two envelopes of the service.

A ``Pages`` is a frozen request. It keeps no items, and can be iterated over again.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

import attrs
from msgspec.structs import replace

from invsvc_async import codec
from invsvc_async.api import arguments
from invsvc_async.api.parameters import METADATA
from invsvc_async.concurrency.async_iterable import OnlyAsync
from invsvc_async.errors import (
    CursorStalledError,
    FilterNotHonouredError,
    InvalidRequestError,
    InvsvcError,
    PagingError,
)
from invsvc_async.models.common import Model
from invsvc_async.models.page import Page
from invsvc_async.models.portable import html_table
from invsvc_async.reads import retry
from invsvc_async.reads.filter_check import filters_of, first_mismatch
from invsvc_async.reads.resume_token import (
    FIRST,
    PagePosition,
    Place,
    digest_of,
    read_token,
    write_token,
)
from invsvc_async.settings import is_number

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from invsvc_async.codec.envelope import Envelope
    from invsvc_async.transport.client_core import ClientOptions, Request

__all__ = ["Pages"]

T = TypeVar("T", bound=Model)


@attrs.frozen(eq=False, repr=False)
class Pages(OnlyAsync, Generic[T]):
    """
    A list that is read during iteration. Await it for the first page only.

    Each page is a read of its own, with its own ``Timeouts.call``. Every error that is raised while iterating
    has a ``resume_token``, with which :meth:`resume` continues at the page that failed.

    Spec: Resources, Response envelopes.
    """

    _view: ClientOptions
    _request: Request  # without a position
    _model: type[T]
    _prefetch: bool = False
    _start: PagePosition = FIRST

    def __repr__(self) -> str:
        return f"<Pages of {self._request.operation.name}>"

    def _repr_html_(self) -> str:
        """Return a table of the arguments, for notebooks.  Nothing is loaded before it is awaited."""
        title = (
            f"{self._request.operation.name}: not loaded (await it, or iterate over it)"
        )
        return html_table(title, ("parameter", "value"), self._request.query.items())

    def __await__(self) -> Generator[object, None, Page[T]]:
        return self._page(self._start).__await__()

    async def __aiter__(self) -> AsyncGenerator[T, None]:
        async with aclosing(self.by_page()) as walk:
            async for page in walk:
                for item in page:
                    yield item
                # the next one reuses its memory, which saves a fifth of the time
                del page

    async def by_page(self) -> AsyncGenerator[Page[T], None]:
        """
        Iterate over the pages, each of up to ``limit`` items.

        Raises:
            CursorStalledError: A cursor was returned a second time.
            FilterNotHonouredError: An item does not match a filter of the request.
            PagingError: There are more pages, but no way to request them.
            ServiceError, TransportError, DeadlineExceededError: As of any read.

        Spec: Resources, Response envelopes.
        """
        position = self._start
        walked = {hash(self._start)}  # hashes, because cursors may be long
        ahead: asyncio.Task[Envelope] | None = None
        try:
            while True:
                page = self._made(await (ahead or self._answer(position)), position)
                ahead = None
                following = self._following(page, position, walked)
                if self._prefetch and isinstance(following, PagePosition):
                    # made into models when it is needed
                    ahead = asyncio.create_task(self._answer(following))
                yield page
                del page  # before the next is made
                if following is None:
                    return
                if isinstance(following, PagingError):
                    with self._placed(position):
                        raise following
                position = following
        finally:
            if ahead is not None:
                ahead.cancel()
                await asyncio.gather(ahead, return_exceptions=True)

    async def collect(self, *, max: int | None = None) -> list[T]:  # noqa: A002 - the public word
        """
        Return up to *max* items (default: all). Pages after the last of them are not read.

        Raises:
            InvalidRequestError: *max* is not a whole number of 1 or more.
            PagingError, ServiceError, TransportError, DeadlineExceededError: As when iterating.

        Spec: Resources, Response envelopes.
        """
        _check_max(max)
        items: list[T] = []
        async with aclosing(self.by_page()) as walk:
            async for page in walk:
                items.extend(page)
                if max is not None and len(items) >= max:
                    break
        return items[:max]

    def token_after(self, page: Page[T]) -> str | None:
        """
        Return a token with which :meth:`resume` continues after *page*, or ``None`` if *page* is the last.

        Spec: Resources, Response envelopes.
        """
        following = self._following(page, PagePosition(page=page.page), set())
        if isinstance(following, PagePosition):
            return self._token(following)
        return None

    def resume(self, token: str) -> Pages[T]:
        """
        Return the same list from *token*, an error's ``resume_token`` or that of :meth:`token_after`.

        A list without arguments gets those of the token. Otherwise they must be the same.

        Raises:
            InvalidRequestError: The token is damaged, or belongs to another list, base URL, team or filter.

        Spec: Resources, Response envelopes.
        """
        place = read_token(token)
        request = self._request
        if place.operation != request.operation.name:
            problem = f"token: belongs to {place.operation}"
        elif place.service != digest_of(self._view.core.base_url):
            problem = "token: belongs to another base URL"
        elif place.team != request.team:
            problem = "token: belongs to another team"
        elif request.query and place.query != request.query:
            problem = "token: belongs to a list with other arguments"
        elif not arguments.are_parameters(
            place.query, request.operation, self._view.names
        ):
            problem = "token: contains arguments that this list does not accept"
        else:
            start = PagePosition(cursor=place.cursor, page=place.page)
            return attrs.evolve(
                self, request=replace(request, query=place.query), start=start
            )
        raise InvalidRequestError(problem, operation=request.operation.name)

    async def _page(self, position: PagePosition) -> Page[T]:
        return self._made(await self._answer(position), position)

    async def _answer(self, position: PagePosition) -> Envelope:
        names = self._view.names
        query = dict(self._request.query)
        with self._placed(position):
            for name, value in (
                (names.cursor, position.cursor),
                (names.page, position.page),
            ):
                if value is not None:
                    if name is None:
                        raise PagingError(
                            "there is a further page, but ParameterNames has no name to request it with. "
                            "Set ParameterNames.cursor and .page to the deployment's names."
                        )
                    query[name] = str(value)
            return await retry.read(self._view, replace(self._request, query=query))

    def _made(self, envelope: Envelope, position: PagePosition) -> Page[T]:
        request = self._request
        asked = position.page
        with self._placed(position):
            meta = codec.meta_of(envelope)
            number = envelope.page
            if number is None:
                number = asked  # for token_after
            page = Page(
                items=codec.many(self._model, envelope),
                next=envelope.next,
                has_more=envelope.has_more,
                total_results=envelope.total_results,
                page=number,
                per_page=envelope.per_page,
                message=envelope.message,
                timestamp=meta.timestamp,
                meta=meta,
            )
            if asked is not None and page.page not in {None, asked}:
                raise CursorStalledError(
                    f"page {asked} was requested, but page {page.page} was returned. "
                    "Check ParameterNames.page, then continue with resume(error.resume_token)."
                )
            filters = filters_of(request.operation, request.query, self._view.names)
            if (
                filters
                and (mismatch := first_mismatch(page.items, filters)) is not None
            ):
                raise FilterNotHonouredError(
                    f"{request.operation.name}: {mismatch}: the service ignored the filter. "
                    "Set the deployment's name of that parameter in ParameterNames."
                )
            return page

    @contextmanager
    def _placed(self, position: PagePosition) -> Generator[None]:
        """Add the resume token of *position* to every error."""
        try:
            yield
        except InvsvcError as error:
            error.resume_token = self._token(position)
            raise

    def _first_page(self) -> int | None:
        """Return the number of the page that was asked for; 1 by default in a list filtered by metadata."""
        query = self._request.query
        name = self._view.names.page
        if name is None or not any(each.startswith(METADATA) for each in query):
            return None
        return int(query.get(name, 1))

    def _following(
        self,
        page: Page[T],
        position: PagePosition,
        walked: set[int],
    ) -> PagePosition | PagingError | None:
        """Return the position after *page*, an error if it cannot be requested, or ``None`` at the end."""
        if page.next:
            following = PagePosition(cursor=page.next)
        elif not page.has_more:
            return None
        elif (number := page.page or position.page or self._first_page()) is None:
            return PagingError(
                "there are more items, but the answer has no cursor and no page number. Narrow the filter."
            )
        elif not page.items:
            return PagingError(
                f"page {number} is empty, but others follow. Continue with resume(error.resume_token)."
            )
        else:
            following = PagePosition(page=number + 1)
        if hash(following) in walked:
            if not page.items and not page.has_more:
                return None  # the last page, whose cursor is its own
            return CursorStalledError(
                "a cursor was returned a second time, so the list would never end. "
                "Check ParameterNames.cursor, then continue with resume(error.resume_token)."
            )
        walked.add(hash(following))
        return following

    def _token(self, position: PagePosition) -> str:
        request = self._request
        return write_token(
            Place(
                operation=request.operation.name,
                query=dict(request.query),
                team=request.team,
                cursor=position.cursor,
                page=position.page,
                service=digest_of(self._view.core.base_url),
            )
        )


def _check_max(most: object) -> None:
    if most is None:
        return
    if not is_number(most) or not isinstance(most, int) or most < 1:
        raise InvalidRequestError("max: must be a whole number, 1 or more")
