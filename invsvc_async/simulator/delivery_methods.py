"""
The methods of `Simulator` that send events to receivers.

Without ``deliver=True``, the simulator sends events only when one of these is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.simulator.deliveries import ATTEMPTS
from invsvc_async.simulator.events import body_of, changed
from invsvc_async.simulator.validate import EVENTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.simulator.deliveries import Delivery, Post
    from invsvc_async.simulator.json_records import Json
    from invsvc_async.simulator.state import Book, State, Version


class Delivering:
    """Deliveries on demand, and the settings of webhooks that their records do not show."""

    _state: State
    _post: Post

    @property
    def deliveries(self) -> list[Delivery]:
        """All deliveries so far, in the order in which they were first sent."""
        return self._post.sent

    async def deliver(  # noqa: PLR0913 - each is a setting of its own
        self,
        event: str | Mapping[str, Json],
        *,
        url: str,
        version: Version = "v2",
        secret: str | None = None,
        headers: Mapping[str, str] | None = None,
        resource: Mapping[str, Json] | None = None,
        test: bool = False,
        duplicates: int = 0,
        signed: bool = False,
        changes: Mapping[str, Json] | None = None,
        attempts: int = ATTEMPTS,
        webhook: str = "wh_1",
        connected_team: str | None = None,
        team: str = "team_1",
        livemode: bool = True,
    ) -> Delivery:
        """
        Deliver one event to *url* and wait for its last attempt.

        *event* is the name of a type, for a body of its family and *version*, or a mapping, which is the body
        itself.  *resource* is the object of the event.  *duplicates* is how many copies follow the first.
        *signed* signs an event of any type; otherwise only the two signed types have a signature, if there is
        a *secret*.  *changes* maps paths in the body, such as ``data.object.total``, to other values.
        *attempts* is how often each copy is sent until it is answered 2xx or refused (signed types: once).

        Raises:
            ValueError: The specification has no such type, or a path leads through something other than an
                object.

        """
        if isinstance(event, str):
            if event not in EVENTS:
                raise ValueError(f"unknown event {event!r}; expected one of {', '.join(EVENTS)}")
            name, book = event, self._state.book(team, livemode=livemode)
            body: Mapping[str, Json] = body_of(
                self._state, event, book, version=version, webhook=webhook, resource=resource, test=test,
                connected_team=connected_team,
            )  # fmt: skip
        else:
            name, body = str(event.get("type") or event.get("event")), event
        for path, value in (changes or {}).items():
            body = changed(body, path, value)
        delivery = self._post.prepare(name, body, url, secret=secret, headers=headers, signed=signed)
        delivery.copies += duplicates
        delivery.most = attempts
        return await self._post.send(delivery)

    async def emit(
        self,
        event: str,
        *,
        resource: Mapping[str, Json] | None = None,
        team: str = "team_1",
        livemode: bool = True,
    ) -> list[Delivery]:
        """Deliver *event* to every active webhook that subscribes to it, and wait for the last attempt."""
        tasks = self._post.emit(event, self._state.book(team, livemode=livemode), resource)
        return [await task for task in tasks]

    def emit_soon(self, event: str, *, team: str = "team_1", livemode: bool = True) -> None:
        """Start what ``emit`` does; ``delivered`` waits for its end."""
        self._post.emit(event, self._state.book(team, livemode=livemode))

    async def delivered(self) -> None:
        """Wait until every automatic delivery has ended."""
        await self._post.settled()

    def set_delivery_headers(self, webhook_id: str, headers: Mapping[str, str]) -> None:
        """Set custom headers of a webhook's resource events.  The API cannot set them."""
        self._book_of(webhook_id).delivery_headers[webhook_id] = dict(headers)

    def set_delivery_version(self, webhook_id: str, version: Version) -> None:
        """Set the payload version of a webhook.  Its record does not show it; the default is "v1"."""
        self._book_of(webhook_id).delivery_versions[webhook_id] = version

    def set_secret(self, webhook_id: str, secret: str) -> None:
        """Set the secret with which a webhook's events are signed, in place of the service's own."""
        self._book_of(webhook_id).secrets[webhook_id] = secret

    def _book_of(self, webhook_id: str) -> Book:
        for book in self._state.books:
            if webhook_id in book.webhooks.items:
                return book
        raise ValueError(f"no webhook {webhook_id!r}")
