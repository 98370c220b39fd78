"""The base class of resources: builds reads, lists and writes from a method's arguments."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from msgspec.structs import replace

from invsvc_async import codec
from invsvc_async.api import arguments as checks
from invsvc_async.concurrency.plain_function import is_plain_function
from invsvc_async.errors import (
    ConfigurationError,
    DeadlineExceededError,
    InvalidRequestError,
    ServiceError,
    TransportError,
)
from invsvc_async.models.common import Model, is_decoded
from invsvc_async.reads import retry
from invsvc_async.reads.pages import Pages
from invsvc_async.reads.resume_token import Position
from invsvc_async.reconcile.compare import names_another
from invsvc_async.reconcile.kinds import KINDS
from invsvc_async.settings import CallOptions, is_number
from invsvc_async.transport.session import Request
from invsvc_async.writes.new_intent import line_of_thing, new_tag
from invsvc_async.writes.results import of_another
from invsvc_async.writes.spec import WriteSpec
from invsvc_async.writes.write import Write

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from invsvc_async.api.operations import Operation
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.settings import AnyReader
    from invsvc_async.transport.session import ClientOptions

__all__ = ["Resource"]

T = TypeVar("T", bound=Model)

_AUTHORITY_WORDS = {
    "api_key": "an API key",
    "oauth_token": "an OAuth token",
    "person_token": "a person's token (identity provider, or personal MCP token)",
}


class Resource:
    """The methods of one resource, on one view of the client."""

    __slots__ = ("_view",)

    def __init__(self, view: ClientOptions) -> None:
        self._view = view

    def _on(self, options: CallOptions | None) -> Self:
        """
        Return this resource with the options of one call.

        Raises:
            InvalidRequestError: They are no ``CallOptions``.
        """
        if options is None:
            return self
        if not isinstance(options, CallOptions):
            raise InvalidRequestError(f"options: must be CallOptions(…), not {type(options).__name__}")
        return type(self)(self._view.for_call(options))

    def _request(
        self,
        operation: Operation,
        arguments: Mapping[str, object],
        *,
        team: str | None = None,
        extra_query: Mapping[str, object] | None = None,
        extra_body: Mapping[str, Wire] | None = None,
        others: Sequence[str] = (),
    ) -> Request:
        """
        Check *arguments* and the kind of credential, and make the request.

        *arguments* may have other members than the operation's parameters, as the ``locals()`` of a method.

        Raises:
            InvalidRequestError: An argument is invalid.
            ConfigurationError: The specification does not allow the operation with this kind of credential.
        """
        checked = checks.check(
            operation, arguments, self._view.names, team, extra_query, extra_body, others=others
        )
        kind = self._view.session.credential.kind
        if operation.credentials and kind not in operation.credentials:
            wanted = " or ".join(_AUTHORITY_WORDS[each] for each in operation.credentials)
            raise ConfigurationError(
                f"{operation.name}: needs {wanted}, but this client has {_AUTHORITY_WORDS[kind]}. "
                "Nothing was sent: make a client with such a credential."
            )
        has_body, connected = operation.method in {"POST", "PUT", "PATCH"}, operation.connect
        return Request(
            operation=operation,
            path=checked.path,
            query=checked.query,
            body=checked.body if has_body else None,
            has_body=has_body,
            team=(team or self._view.team) if connected else None,
        )

    async def _read(
        self,
        model: type[T],
        operation: Operation,
        arguments: Mapping[str, object],
        team: str | None = None,
        extra_query: Mapping[str, object] | None = None,
    ) -> T:
        request = self._request(operation, arguments, extra_query=extra_query, team=team)
        return codec.one(model, await retry.read(self._view, request))

    async def _wait_for(
        self,
        model: type[T],
        operation: Operation,
        arguments: Mapping[str, object],
        team: str | None,
        extra_query: Mapping[str, object] | None = None,
        *,
        until: Callable[[T], bool],
        timeout: float,
        poll: float,
        what: str,
    ) -> T:
        """
        Read every *poll* seconds until the condition holds. Transient failures are retried.

        Raises:
            DeadlineExceededError: It did not hold within *timeout* seconds.
        """
        others = [
            f"{name}: must be a number of seconds, more than 0"
            for name, value in (("timeout", timeout), ("poll", poll))
            if value != inf and not (is_number(value) and value > 0)
        ]
        if not is_plain_function(until):
            others.append(f"until: {retry.NOT_A_CONDITION}")
        request = self._request(operation, arguments, extra_query=extra_query, team=team, others=others)
        clock, longest, loop = self._view.session.clock, self._view.timeouts.call, asyncio.get_running_loop()
        end = clock.now() + timeout
        while True:
            deadline, failure = loop.time() + min(longest, end - clock.now()), None
            try:
                seen = codec.one(model, await retry.read(self._view, request, deadline=deadline))
            except (ServiceError, TransportError, DeadlineExceededError) as error:
                if not (isinstance(error, DeadlineExceededError) or retry.is_transient(error)):
                    raise
                failure = error
            else:
                if retry.is_true("until", until, seen):
                    return seen
            if clock.now() + poll >= end:
                raise DeadlineExceededError(
                    f"{what}: not ready after {timeout} s. Waiting changed nothing: call again to continue."
                ) from failure
            await clock.sleep(poll)

    async def _read_state(
        self, model: type[T], operation: Operation, arguments: Mapping[str, object], team: str | None
    ) -> T:
        """
        Read one thing, and keep its state for the writes that follow.

        Raises:
            UnreadableResponseError: The answer is about another thing. (And the errors of all reads.)
        """
        view = self._view
        session = view.session
        request = self._request(operation, arguments, team=team)
        begun = session.clock.now()
        envelope = await retry.read(view, request)
        state = codec.one(model, envelope)
        shown = getattr(state, "id", None)
        if shown != request.path.get("id") and names_another(shown, request.path):
            raise of_another(envelope, shown)
        session.writes.learn_state(
            request.team,
            line_of_thing(request.operation, *request.path.values()),
            envelope.raw,
            begun,
            session.clock.now(),
            stamp=envelope.stamp,
            weight=len(envelope.content),
        )
        return state

    def _pages(
        self,
        model: type[T],
        operation: Operation,
        arguments: Mapping[str, object],
        *,
        team: str | None,
        prefetch: bool,
    ) -> Pages[T]:
        """Make a list. The position in *arguments* becomes its start."""
        names = self._view.names
        request = self._request(operation, arguments, team=team)
        query = dict(request.query)
        cursor = query.pop(names.cursor, None) if names.cursor else None
        page = query.pop(names.page, None) if names.page else None
        start = Position(cursor=cursor, page=None if page is None else int(page))
        return Pages(self._view, replace(request, query=query), model, prefetch, start)

    def _write(
        self,
        request: Request,
        *,
        baseline: object = None,
        reader: AnyReader | None = None,
        tag: bool | str = False,
        on_lost_secret: Literal["raise", "keep"] = "raise",
    ) -> Write[Any]:  # Any: the row names the model, the resource's method types it
        """Make a write. A *baseline* that is an object, not an id, is the last known state."""
        known = None if isinstance(baseline, str) else baseline
        if isinstance(known, Model) and not is_decoded(known):
            known = codec.unstructure(known)  # now: it may contain values that have no wire form
        if tag is True:
            tag = new_tag()
        spec = WriteSpec(
            options=self._view,
            request=request,
            kind=KINDS[request.operation.write_kind or ""],
            policy=self._view.reconcile,
            tag=tag or None,
            baseline=known,
            reader=reader,
        )
        return Write(spec, on_lost_secret=on_lost_secret)
