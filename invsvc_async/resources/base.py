"""The base class of resources: builds reads, lists and writes from a method's arguments."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar, Unpack

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
from invsvc_async.reads.resume_token import PagePosition
from invsvc_async.reconcile.compare import names_another
from invsvc_async.reconcile.kinds import kind_of_write
from invsvc_async.settings import CallOptions, is_number
from invsvc_async.transport.client_core import ClientOptions, Request
from invsvc_async.writes.line_names import line_of_thing
from invsvc_async.writes.new_intent import new_tag
from invsvc_async.writes.spec import WriteSpec
from invsvc_async.writes.values import of_another
from invsvc_async.writes.write import Write

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from invsvc_async.api.operations import Operation
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.settings import AnyReader


T = TypeVar("T", bound=Model)
# by the names of parameters; UNSET is not sent
Values: TypeAlias = "Mapping[str, object]"

_AUTHORITY_WORDS = {
    "api_key": "an API key",
    "oauth_token": "an OAuth token",
    "person_token": "a person's token (identity provider, or personal MCP token)",
}


class CallArguments(TypedDict, total=False):
    """What a method takes beside the parameters of its operation. Each may be left out."""

    team: str | None
    options: CallOptions | None
    extra_query: Mapping[str, str | int] | None
    extra_body: Mapping[str, Wire] | None


class Resource:
    """
    The methods of one resource, on one view of the client.

    A method passes its values for the parameters of the operation as a mapping, and ``team``, ``options``,
    ``extra_query`` and ``extra_body`` by keyword, if it has them.
    """

    __slots__ = ("_view",)

    def __init__(self, view: ClientOptions) -> None:
        self._view = view

    def _with_options(self, options: CallOptions | None) -> ClientOptions:
        """
        Return the view with the options of one call.

        Raises:
            InvalidRequestError: The *options* are no ``CallOptions``.
        """
        if options is None:
            return self._view
        if not isinstance(options, CallOptions):
            raise InvalidRequestError(
                f"options: must be CallOptions(…), not {type(options).__name__}"
            )
        return self._view.for_call(options)

    def _request(
        self,
        operation: Operation,
        values: Values,
        problems: Sequence[str] = (),
        **call: Unpack[CallArguments],
    ) -> tuple[ClientOptions, Request]:
        """
        Check arguments and the kind of credential; return the view for the call, and the request.

        *values* has a value for each parameter of *operation*. *problems* were found before.

        Raises:
            InvalidRequestError: An argument is invalid, or there are *problems*.
            ConfigurationError: The specification does not allow the operation with this kind of credential.
        """
        view = self._with_options(call.get("options"))
        team = call.get("team")
        checked = checks.check(
            operation,
            values,
            view.names,
            team,
            call.get("extra_query"),
            call.get("extra_body"),
            problems,
        )
        kind = view.core.credential.kind
        if operation.credentials and kind not in operation.credentials:
            wanted = " or ".join(
                _AUTHORITY_WORDS[each] for each in operation.credentials
            )
            raise ConfigurationError(
                f"{operation.name}: needs {wanted}, but this client has {_AUTHORITY_WORDS[kind]}. "
                "Nothing was sent: make a client with such a credential."
            )
        has_body = operation.method in {"POST", "PUT", "PATCH"}
        body = None
        if has_body:
            body = checked["body"]
        of_team = None
        if operation.connect:
            of_team = team or view.team
        return view, Request(
            operation=operation,
            path=checked["path"],
            query=checked["query"],
            body=body,
            has_body=has_body,
            team=of_team,
        )

    async def _read(
        self,
        model: type[T],
        operation: Operation,
        values: Values,
        **call: Unpack[CallArguments],
    ) -> T:
        view, request = self._request(operation, values, **call)
        return codec.one(model, await retry.read(view, request))

    async def _wait_for(
        self,
        model: type[T],
        operation: Operation,
        values: Values,
        *,
        until: Callable[[T], bool],
        timeout: float,
        poll: float,
        what: str,
        **call: Unpack[CallArguments],
    ) -> T:
        """
        Read every *poll* seconds until ``until(model)`` is true. Transient failures are retried.

        *what* is the name of the method, for the error.

        Raises:
            DeadlineExceededError: The condition was not true within *timeout* seconds.
        """
        problems = [
            f"{name}: must be a number of seconds, more than 0"
            for name, seconds in (("timeout", timeout), ("poll", poll))
            if not _is_wait(seconds)
        ]
        if not is_plain_function(until):
            problems.append(f"until: {retry.NOT_A_CONDITION}")
        view, request = self._request(operation, values, problems, **call)
        clock = view.core.clock
        loop = asyncio.get_running_loop()
        end = clock.now() + timeout
        while True:
            deadline = loop.time() + min(view.timeouts.call, end - clock.now())
            failure = None
            try:
                seen = codec.one(
                    model, await retry.read(view, request, deadline=deadline)
                )
            except (ServiceError, TransportError, DeadlineExceededError) as error:
                if not _may_pass(error):
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
        self,
        model: type[T],
        operation: Operation,
        values: Values,
        **call: Unpack[CallArguments],
    ) -> T:
        """
        Read a thing, and keep its state for later writes.

        Raises:
            UnreadableResponseError: The answer is about another thing. (And the errors of all reads.)
        """
        view, request = self._request(operation, values, **call)
        core = view.core
        begun = core.clock.now()
        envelope = await retry.read(view, request)
        state = codec.one(model, envelope)
        shown = getattr(state, "id", None)
        if shown != request.path.get("id") and names_another(shown, request.path):
            raise of_another(envelope, shown)
        core.writes.learn_state(
            request.team,
            line_of_thing(operation, *request.path.values()),
            envelope.raw,
            begun,
            core.clock.now(),
            stamp=envelope.stamp,
            weight=len(envelope.content),
        )
        return state

    def _pages(
        self,
        model: type[T],
        operation: Operation,
        values: Values,
        *,
        prefetch: bool,
        **call: Unpack[CallArguments],
    ) -> Pages[T]:
        """Make a list. It starts at the cursor or the page in *values*, if there is one."""
        view, request = self._request(operation, values, **call)
        names = view.names
        query = dict(request.query)
        cursor = query.pop(names.cursor, None) if names.cursor else None
        page = query.pop(names.page, None) if names.page else None
        start = PagePosition(cursor=cursor, page=None if page is None else int(page))
        return Pages(view, replace(request, query=query), model, prefetch, start)

    def _write(
        self,
        operation: Operation,
        values: Values,
        *,
        problems: Sequence[str] = (),
        baseline: object = None,
        reader: AnyReader | None = None,
        tag: str | bool | None = None,
        on_lost_secret: Literal["raise", "keep"] = "raise",
        **call: Unpack[CallArguments],
    ) -> Write[Any]:  # Any: the row names the model, the resource's method types it
        """Make a write of *operation*. *problems* of its arguments were found before."""
        view, request = self._request(operation, values, problems, **call)
        return self._write_of(
            view,
            request,
            baseline=baseline,
            reader=reader,
            tag=tag,
            on_lost_secret=on_lost_secret,
        )

    def _write_of(
        self,
        view: ClientOptions,
        request: Request,
        *,
        baseline: object = None,
        reader: AnyReader | None = None,
        tag: str | bool | None = None,
        on_lost_secret: Literal["raise", "keep"] = "raise",
    ) -> Write[Any]:  # Any: as above
        """
        Make the write of *request*.

        *baseline* is the thing that the write changes: its last known state, or its id, which shows none.
        """
        known = None if isinstance(baseline, str) else baseline
        if isinstance(known, Model) and not is_decoded(known):
            # now: it may contain values that have no wire form
            known = codec.unstructure(known)
        if tag is True:
            tag = new_tag()
        spec = WriteSpec(
            options=view,
            request=request,
            kind=kind_of_write(request.operation),
            policy=view.reconcile,
            tag=tag or None,
            may_tag=tag is not False,
            baseline=known,
            reader=reader,
        )
        return Write(spec, on_lost_secret=on_lost_secret)


def _is_wait(seconds: float) -> bool:
    """Return whether *seconds* is a time that can be waited for."""
    return seconds == inf or (is_number(seconds) and seconds > 0)


def _may_pass(error: Exception) -> bool:
    """Return whether the next read may succeed after *error*."""
    return isinstance(error, DeadlineExceededError) or retry.is_transient(error)
