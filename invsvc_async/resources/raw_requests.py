"""Operations that the specification does not list: any read, write or download below the base URL."""

from __future__ import annotations

import asyncio
import re
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import quote, unquote

import attrs

from invsvc_async.api import operations
from invsvc_async.api.arguments import check_team
from invsvc_async.api.json_values import Problems, kind_of, to_wire
from invsvc_async.api.parameters import CONTROL, quoted, texts_of
from invsvc_async.errors import InvalidRequestError
from invsvc_async.models.common import UNSET
from invsvc_async.reads import retry
from invsvc_async.resources.base import Resource
from invsvc_async.transport.client_core import ClientOptions, Request, error_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping
    from decimal import Decimal
    from types import TracebackType
    from typing import Unpack

    from invsvc_async.api.operations import Operation
    from invsvc_async.codec.envelope import Envelope
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.settings import AnyReader, CallOptions
    from invsvc_async.transport.transport import Download
    from invsvc_async.writes.write import Write

_SAFE = "/%:@!$&'()*+,;=~"  # not quoted in a path; existing escapes stay
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
# The methods of each kind of operation, and what has the others.
_READS = ("GET",), "client.write"
_WRITES = ("DELETE", "PATCH", "POST", "PUT"), "client.request"


class RawArguments(TypedDict, total=False):
    """What a method takes beside the path. Each may be left out."""

    params: Mapping[str, str | int | Decimal] | None
    json: Wire
    team: str | None
    options: CallOptions | None


class Unlisted(Resource):
    """Operations that the specification does not list. ``Client`` documents them."""

    async def read(
        self, method: str, path: str, **given: Unpack[RawArguments]
    ) -> Envelope:
        """Read, as ``Client.request``."""
        view, request = self._raw_request(
            operations.CLIENT_REQUEST, method, path, **given
        )
        return await retry.read(view, request)

    def write(
        self,
        method: str,
        path: str,
        *,
        reader: AnyReader | None,
        **given: Unpack[RawArguments],
    ) -> Write[Wire]:
        """Make a write, as ``Client.write``."""
        view, request = self._raw_request(
            operations.CLIENT_WRITE, method, path, **given
        )
        return self._write_of(view, request, reader=reader)

    def download(self, path: str, **given: Unpack[RawArguments]) -> ByteStream:
        """Make a download, as ``Client.download``."""
        view, request = self._raw_request(
            operations.CLIENT_DOWNLOAD, "GET", path, **given
        )
        return ByteStream(view, request)

    def _raw_request(
        self,
        operation: Operation,
        method: str,
        path: str,
        **given: Unpack[RawArguments],
    ) -> tuple[ClientOptions, Request]:
        """
        Check the arguments of a call; return the view for the call, and its request.

        Raises:
            InvalidRequestError: An argument is invalid.
        """
        view = self._with_options(given.get("options"))
        team = given.get("team")
        json = given.get("json", UNSET)
        problems: Problems = []
        methods, other = _WRITES if operation is operations.CLIENT_WRITE else _READS
        if method not in methods:
            shown = quoted(method) if isinstance(method, str) else kind_of(method)
            problems.append(
                f"method: {shown} is not one of {', '.join(methods)}; use {other} for others"
            )
        _check_path(path, problems)
        if team is not None:
            check_team(team, problems)
        query = texts_of("params", given.get("params") or {}, problems)
        if "team" in query:
            problems.append("params.team: use the team argument")
        body = None if json is UNSET else to_wire(json, "json", problems)
        if problems:
            raise InvalidRequestError(problems, operation=operation.name)
        return view, Request(
            operation=operation,
            query=query,
            body=body,
            has_body=json is not UNSET,
            team=team or view.team,
            method=method,
            raw_path="/" + quote(path.removeprefix("/"), safe=_SAFE),
        )


def _check_path(path: object, problems: Problems) -> None:
    if not isinstance(path, str) or not path.strip("/"):
        problems.append(
            "path: must be a string relative to the base URL, such as /payments"
        )
        return
    whole = unquote(f"/{path.removeprefix('/')}")
    if CONTROL.search(path + whole) or "\\" in whole:
        problems.append("path: contains a backslash or a control character")
    if "?" in path or "#" in path:
        problems.append("path: contains ? or #; pass the query as params")
    has_steps = not {".", ".."}.isdisjoint(whole.split("/"))
    if _SCHEME.match(path) or "//" in whole or has_steps:
        problems.append(
            "path: must stay below the base URL: no scheme, no //, no . or .. segment"
        )


@attrs.define(eq=False, repr=False)
class ByteStream:
    """
    Bytes that are read while they arrive.

    Iterate over it once, ``await .read()`` all of it, or use ``async with`` to see the headers first.

    Spec: Endpoints, Invoices.
    """

    _view: ClientOptions
    _request: Request
    _open: AsyncExitStack = attrs.field(factory=AsyncExitStack)

    async def __aenter__(self) -> Download:
        return await self._open.enter_async_context(self._opened())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._open.__aexit__(kind, error, trace)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with self._opened() as body:
            async for part in body:
                yield part

    async def read(self) -> bytes:
        """
        Read all of it, at most the client's ``max_response_bytes``.

        Raises:
            ServiceError, NotSentError, ResponseLostError: As when iterating.

        Spec: Endpoints, Invoices.
        """
        async with self._opened() as body:
            return await body.read()

    def _opened(self) -> AbstractAsyncContextManager[Download]:
        on_stream = self._view.core.on_stream
        sent = self._sent()
        if on_stream is None:
            return sent
        return on_stream(self._request, sent)

    @asynccontextmanager
    async def _sent(self) -> AsyncGenerator[Download, None]:
        """Send the request, twice if the token was stale, and yield a successful answer."""
        view = self._view
        name = self._request.operation.name
        for may_renew in (True, False):
            deadline = asyncio.get_running_loop().time() + view.timeouts.attempt
            await view.fetch_token(self._request, deadline)
            exchange = view.exchange(self._request, deadline)
            async with view.core.transport.stream(exchange) as body:
                if 200 <= body.status < 300:
                    yield body
                    return
                exchange.answer = await body.read()
            if not may_renew or not await view.renew_token(exchange):
                raise error_of(exchange, name)
