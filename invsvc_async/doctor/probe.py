"""Single reads of a deployment; errors are returned as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from invsvc_async.api.json_values import is_object
from invsvc_async.api.operations import CLIENT_REQUEST, INVOICES_EGRESS
from invsvc_async.errors import InvsvcError, ServiceError
from invsvc_async.reads import retry
from invsvc_async.transport.session import Request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from invsvc_async.transport.session import ClientOptions

__all__ = ["Answer", "Prober", "ReadList"]


@attrs.frozen(kw_only=True)
class Answer:
    """
    Result of one read; ``status`` is ``None`` if no usable answer arrived, and ``error`` has the reason.
    """

    status: int | None
    items: list[dict[str, Any]] = attrs.field(factory=list[dict[str, Any]])  # Any: JSON, as below
    next: str | None = None
    own: bool = True  # the service's own envelope
    error: str = ""

    @property
    def words(self) -> str:
        """What it says, if it is an error."""
        return f"HTTP {self.status} {self.error}" if self.status else self.error

    def item(self, name: str) -> Any:
        """Return a field of the first item; ``None`` if there is no item."""
        return self.items[0].get(name) if self.items else None

    @property
    def ids(self) -> list[Any]:
        """Ids of the items."""
        return [item.get("uuid") for item in self.items]


ReadList: TypeAlias = "Callable[[Mapping[str, str]], Awaitable[Answer]]"  # reads a list with a query


@attrs.define
class Prober:
    """Reads through one client, with the duration of each in seconds."""

    view: ClientOptions
    seconds: list[float] = attrs.field(factory=list[float])

    async def invoices(self, query: Mapping[str, str]) -> Answer:
        """Read a page of egress invoices; parameters have their wire names."""
        return await self.read(Request(operation=INVOICES_EGRESS, query=query))

    async def path(self, path: str, query: Mapping[str, str]) -> Answer:
        """Read any path."""
        request = Request(operation=CLIENT_REQUEST, raw_path=path, method="GET", query=query)
        return await self.read(request)

    async def read(self, request: Request) -> Answer:
        """Read with the client's own retries."""
        clock = self.view.session.clock
        begun = clock.now()
        try:
            envelope = await retry.read(self.view, request)
        except ServiceError as error:
            text = f"{error.code or ''} {error.message or ''}".strip()
            return Answer(status=error.status, own=error.own_envelope, error=text)
        except InvsvcError as error:
            return Answer(status=None, own=False, error=str(error))
        self.seconds.append(clock.now() - begun)
        return Answer(status=200, items=_objects(envelope.data), next=envelope.next)


def _objects(payload: Any) -> list[dict[str, Any]]:  # Any: JSON as it came
    listed = payload.get("data") if is_object(payload) else payload  # some listings are nested in the payload
    return [dict(each) for each in listed if is_object(each)] if isinstance(listed, list) else []
