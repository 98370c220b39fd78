"""
The methods of `Simulator` that send events to receivers.

Without ``deliver=True``, the simulator sends events only when one of these is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.simulator.events import body_of
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

    async def deliver(
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
        webhook: str = "wh_1",
        connected_team: str | None = None,
        team: str = "team_1",
        livemode: bool = True,
    ) -> Delivery:
        """
        Deliver one event to *url* and wait for its last attempt.

        *event* is the name of a type, for a body of its family and *version*, or a mapping, which is the body
        itself.  *resource* is the object of the event.  *duplicates* is how many copies follow the first.

        Raises:
            ValueError: The specification has no such type.

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
        delivery = self._post.prepare(name, body, url, secret=secret, headers=headers)
        delivery.copies += duplicates
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

    async def delivered(self) -> None:
        """Wait until every automatic delivery has ended."""
        await self._post.settled()

    def set_delivery_headers(self, webhook_id: str, headers: Mapping[str, str]) -> None:
        """Set custom headers of a webhook's resource events.  The API cannot set them."""
        self._book_of(webhook_id).delivery_headers[webhook_id] = dict(headers)

    def set_delivery_version(self, webhook_id: str, version: Version) -> None:
        """Set the payload version of a webhook.  Its record does not show it; the default is "v1"."""
        self._book_of(webhook_id).delivery_versions[webhook_id] = version

    def _book_of(self, webhook_id: str) -> Book:
        for book in self._state.books:
            if webhook_id in book.webhooks.items:
                return book
        raise ValueError(f"no webhook {webhook_id!r}")
