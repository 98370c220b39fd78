"""The base class of resources: builds reads, lists and writes from a method's arguments."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

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
from invsvc_async.reconcile.kinds import KINDS
from invsvc_async.settings import CallOptions, is_number
from invsvc_async.transport.client_core import ClientOptions, Request
from invsvc_async.writes.new_intent import line_of_thing, new_tag
from invsvc_async.writes.results import of_another
from invsvc_async.writes.spec import WriteSpec
from invsvc_async.writes.write import Write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from invsvc_async.api.operations import Operation


T = TypeVar("T", bound=Model)
Given: TypeAlias = "Mapping[str, Any]"  # Any: the arguments of a method

_AUTHORITY_WORDS = {
    "api_key": "an API key",
    "oauth_token": "an OAuth token",
    "person_token": "a person's token (identity provider, or personal MCP token)",
}


class Resource:
    """
    The methods of one resource, on one view of the client.

    A method hands over its ``locals()`` as *given*: the parameters of the operation by name, and ``team``,
    ``options``, ``extra_query``, ``extra_body``, ``reader`` and others, if it has them.
    """

    __slots__ = ("_view",)

    def __init__(self, view: ClientOptions) -> None:
        self._view = view

    def _with_options(self, options: CallOptions | None) -> ClientOptions:
        """
        Return the view with the options of one call.

        Raises:
            InvalidRequestError: They are no ``CallOptions``.
        """
        if options is None:
            return self._view
        if not isinstance(options, CallOptions):
            raise InvalidRequestError(f"options: must be CallOptions(…), not {type(options).__name__}")
        return self._view.for_call(options)

    def _asked(
        self, operation: Operation, given: Given, others: Sequence[str] = (), /
    ) -> tuple[ClientOptions, Request]:
        """
        Check what is *given* and the kind of credential; return the view for the call, and its request.

        Raises:
            InvalidRequestError: An argument is invalid, or there are *others*, which are problems.
            ConfigurationError: The specification does not allow the operation with this kind of credential.
        """
        view = self._view
        get = given.get
        if (options := get("options")) is not None:
            view = self._with_options(options)
        team = get("team")
        checked = checks.check(
            operation, given, view.names, team, get("extra_query"), get("extra_body"), others
        )
        kind = view.core.credential.kind
        if operation.credentials and kind not in operation.credentials:
            wanted = " or ".join(_AUTHORITY_WORDS[each] for each in operation.credentials)
            raise ConfigurationError(
                f"{operation.name}: needs {wanted}, but this client has {_AUTHORITY_WORDS[kind]}. "
                "Nothing was sent: make a client with such a credential."
            )
        has_body = operation.method in {"POST", "PUT", "PATCH"}
        return view, Request(
            operation=operation,
            path=checked["path"],
            query=checked["query"],
            body=checked["body"] if has_body else None,
            has_body=has_body,
            team=(team or view.team) if operation.connect else None,
        )

    async def _read(self, model: type[T], operation: Operation, given: Given) -> T:
        return codec.one(model, await retry.read(*self._asked(operation, given)))

    async def _wait_for(self, model: type[T], operation: Operation, given: Given, what: str) -> T:
        """
        Read every ``poll`` seconds until the condition ``until`` holds. Transient failures are retried.

        Raises:
            DeadlineExceededError: It did not hold within ``timeout`` seconds.
        """
        until = given["until"]
        timeout = given["timeout"]
        poll = given["poll"]
        others = [
            f"{name}: must be a number of seconds, more than 0"
            for name, value in (("timeout", timeout), ("poll", poll))
            if value != inf and not (is_number(value) and value > 0)
        ]
        if not is_plain_function(until):
            others.append(f"until: {retry.NOT_A_CONDITION}")
        view, request = self._asked(operation, given, others)
        clock = view.core.clock
        longest = view.timeouts.call
        loop = asyncio.get_running_loop()
        end = clock.now() + timeout
        while True:
            deadline = loop.time() + min(longest, end - clock.now())
            failure = None
            try:
                seen = codec.one(model, await retry.read(view, request, deadline=deadline))
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

    async def _read_state(self, model: type[T], operation: Operation, given: Given) -> T:
        """
        Read one thing, and keep its state for the writes that follow.

        Raises:
            UnreadableResponseError: The answer is about another thing. (And the errors of all reads.)
        """
        view, request = self._asked(operation, given)
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

    def _pages(self, model: type[T], operation: Operation, given: Given) -> Pages[T]:
        """Make a list. The position in *given* becomes its start."""
        view, request = self._asked(operation, given)
        names = view.names
        query = dict(request.query)
        cursor = query.pop(names.cursor, None) if names.cursor else None
        page = query.pop(names.page, None) if names.page else None
        start = PagePosition(cursor=cursor, page=None if page is None else int(page))
        return Pages(view, replace(request, query=query), model, given["prefetch"], start)

    def _write(
        self, operation: Operation, given: Given, baseline: object = None, others: Sequence[str] = ()
    ) -> Write[Any]:  # Any: the row names the model, the resource's method types it
        """Make a write. A *baseline* that is an object, not an id, is the last known state."""
        view, request = self._asked(operation, given, others)
        known = None if isinstance(baseline, str) else baseline
        if isinstance(known, Model) and not is_decoded(known):
            known = codec.unstructure(known)  # now: it may contain values that have no wire form
        tag = given.get("tag")
        spec = WriteSpec(
            options=view,
            request=request,
            kind=KINDS[operation.write_kind or ""],
            policy=view.reconcile,
            tag=new_tag() if tag is True else tag or None,
            may_tag=tag is not False,
            baseline=known,
            reader=given.get("reader"),
        )
        return Write(spec, on_lost_secret=given.get("on_lost_secret", "raise"))
