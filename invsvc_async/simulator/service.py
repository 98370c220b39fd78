"""
The simulator: the service of the specification in memory, on a real socket of this machine.

By default it listens only on the loopback interface.  It imports nothing of the client.
"""

from __future__ import annotations

from collections import deque
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self, TypedDict

from aiohttp import web

from invsvc_async.simulator import inspector
from invsvc_async.simulator.app import Application
from invsvc_async.simulator.auth import MODULES, IssuedToken, Keyring, Role
from invsvc_async.simulator.deliveries import (
    ATTEMPTS,
    EventDelivery,
    Post,
    body_of,
    changed,
    prepare,
    type_of,
)
from invsvc_async.simulator.faults import Faults, Step, parse_for
from invsvc_async.simulator.ledger import Ledger
from invsvc_async.simulator.loopback_page import serving
from invsvc_async.simulator.operations import BY_OPERATION
from invsvc_async.simulator.plan_checks import check_seconds
from invsvc_async.simulator.seed_methods import Seeding, seed_all
from invsvc_async.simulator.state import (
    JourneyReads,
    ServiceClock,
    ServiceState,
    Version,
)
from invsvc_async.simulator.stores import Stores
from invsvc_async.simulator.validate import EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from ssl import SSLContext

    from invsvc_async.simulator.json_records import Json

MAX_BODY = 32 * 1024 * 1024  # bytes of a request
PATIENCE = 0.2  # seconds that running exchanges get at the end


class SimulatorSettings(TypedDict, total=False):
    """The arguments of `Simulator`, for functions that pass them on. Each may be left out."""

    seed: int
    faults: Faults | None
    stores: Stores | None
    journey_reads: JourneyReads
    names: Mapping[str, str] | None
    latency: float
    at_once: int | None
    host: str
    port: int
    deliver: bool
    delivery_backoff: float
    delivery_timeout: float
    deliveries_kept: int | None
    admin: bool
    inspect: bool
    ssl: SSLContext | None
    clock: ServiceClock | None


class Simulator(Seeding):
    """
    The service; it runs for the duration of ``async with``.

    Args:
        seed: Seed of records, ids and faults (faults also depend on the order of arrival).
        faults: A plan of random faults; `script` decides single arrivals.
        stores: How it stores journeys and webhooks; by default letter by letter.
        journey_reads: What ``GET /journeys/{id}`` shows of a journey not a draft; "off" makes it a 404.
        names: Other names for the query parameters that the specification does not name, by those of `NAMES`.
        latency: Processing time of each request, in seconds.
        at_once: How many requests are processed at once; the rest queue. `None` means no limit.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        deliver: Deliver events of its own writes (``POST /invoices/income/batch``) to subscribed webhooks.
            Otherwise, events are sent only when `deliver` or `emit` is called.
        delivery_backoff: Seconds before the second attempt of a delivery; doubled up to 16 times that.
        delivery_timeout: Timeout of one attempt of a delivery, in seconds.
        deliveries_kept: How many deliveries are kept in `deliveries`, by default all.  If so many automatic
            ones are under way, the oldest is given up for a new one.
        admin: Serve ``/_simulator/`` (ledger, arrivals, script, faults), without authentication.
        inspect: Serve the page at `inspect_url` from the start.
        ssl: Serve over TLS, with this context of a server.
        clock: Its clock, by default the machine's. Waits use the event loop.

    Raises:
        ValueError: A setting is not valid.
    """

    def __init__(  # noqa: PLR0913 - each is a setting of its own
        self,
        *,
        seed: int = 7,
        faults: Faults | None = None,
        stores: Stores | None = None,
        journey_reads: JourneyReads = "draft",
        names: Mapping[str, str] | None = None,
        latency: float = 0.0,
        at_once: int | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        deliver: bool = False,
        delivery_backoff: float = 0.01,
        delivery_timeout: float = 10.0,
        deliveries_kept: int | None = None,
        admin: bool = False,
        inspect: bool = False,
        ssl: SSLContext | None = None,
        clock: ServiceClock | None = None,
    ) -> None:
        self.clock: ServiceClock = clock or ServiceClock()
        """The service's clock.  Set its `offset`, in seconds, to make it wrong."""
        self.base_url: str = ""
        self._root = ""  # by which this machine reaches it
        self.faults: Faults = faults or Faults.none()
        """The current plan; assign another one to start or end an outage."""
        self.ledger: Ledger = Ledger(self.clock.steady)
        self.team: str = "team_1"
        self._state = ServiceState(
            seed=seed,
            names=names or {},
            journey_reads=journey_reads,
            clock=self.clock,
            stores=stores or Stores(),
        )
        self._keyring = Keyring(self._state)
        self._app = Application(
            self._keyring,
            self.ledger,
            lambda: self.faults,
            seed=seed,
            latency=latency,
            at_once=at_once,
        )
        self.scripts: Mapping[str, Iterable[Step]] = self._app.scripts
        """The steps that wait for their arrivals, by operation."""
        timing = {"backoff": delivery_backoff, "timeout": delivery_timeout}
        self._post = Post(
            self._state, seed, lambda: self.faults, kept=deliveries_kept, **timing
        )
        self.deliveries: list[EventDelivery] = self._post.sent
        """All deliveries so far, in the order in which they were first sent."""
        if deliver:
            self._app.on_effect = self._post.on_effect
        self._host = host
        self._port = port
        self._admin = admin
        self._ssl = ssl
        self._running = AsyncExitStack()
        self._is_inspected = inspect
        seed_all(self, self._state)
        self.api_key: str = self.issue_key()
        self.test_key: str = self.issue_key(livemode=False)
        self.oauth_token: str = self.issue_oauth_token()
        self.person_token: str = self.issue_person_token()

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=MAX_BODY)
        if self._admin:
            inspector.mount_admin(app, self)
        inspector.mount(app, self, is_open=lambda: self._is_inspected)
        self._app.mount(app)
        root = await self._running.enter_async_context(
            serving(
                app,
                host=self._host,
                port=self._port,
                patience=PATIENCE,
                ssl=self._ssl,
            )
        )
        self._running.push_async_callback(self._post.stop)
        self._running.push_async_callback(self._app.stop)
        self.base_url = f"{root}/v2"
        self._root = root.replace("//0.0.0.0:", "//127.0.0.1:").replace(
            "//[::]:", "//[::1]:"
        )
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._running.aclose()

    async def settled(self) -> None:
        """Wait until no effect is pending, neither a late one nor that of a slow exchange."""
        await self._app.settled()

    async def delivered(self) -> None:
        """Wait until every automatic delivery has ended."""
        await self._post.settled()

    # Faults and deliveries

    @property
    def latency(self) -> float:
        """Processing time of each request, in seconds; assign another one for later requests."""
        return self._app.latency

    @latency.setter
    def latency(self, seconds: float) -> None:
        check_seconds("latency", seconds)
        self._app.latency = seconds

    @property
    def stores(self) -> Stores:
        """How it stores journeys and webhooks; assign another plan to change that for later writes."""
        return self._state.stores

    @stores.setter
    def stores(self, stores: Stores) -> None:
        self._state.stores = stores

    def script(self, operation: str, *steps: str) -> None:
        """
        Set the steps of the next arrivals of *operation*, one each.  They take precedence over the plan.

        Raises:
            ValueError: The operation or a step is unknown (the message lists the valid ones).
        """
        route = BY_OPERATION.get(operation)
        if route is None:
            known = ", ".join(sorted(BY_OPERATION))
            raise ValueError(
                f"unknown operation {operation!r}; expected one of {known}"
            )
        parsed = [parse_for(operation, words, write=route.write) for words in steps]
        self._app.scripts.setdefault(operation, deque()).extend(parsed)

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
    ) -> EventDelivery:
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
                raise ValueError(
                    f"unknown event {event!r}; expected one of {', '.join(EVENTS)}"
                )
            name = event
            book = self._state.book(team, livemode=livemode)
            kind = (event, book, version, webhook)
            body: Mapping[str, Json] = body_of(
                self._state,
                *kind,
                resource=resource,
                test=test,
                connected_team=connected_team,
            )
        else:
            name = type_of(event)
            body = event
        for path, value in (changes or {}).items():
            body = changed(body, path, value)
        delivery = prepare(name, body, url, secret, headers, signed=signed)
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
    ) -> list[EventDelivery]:
        """Deliver *event* to every active webhook that subscribes to it, and wait for the last attempt."""
        book = self.book(team=team, livemode=livemode)
        return [await task for task in self._post.emit(event, book, resource)]

    def emit_soon(
        self,
        event: str,
        *,
        team: str = "team_1",
        livemode: bool = True,
    ) -> None:
        """Start what ``emit`` does; ``delivered`` waits for its end."""
        self._post.emit(event, self.book(team=team, livemode=livemode))

    def set_delivery_headers(self, webhook_id: str, headers: Mapping[str, str]) -> None:
        """Set custom headers of a webhook's resource events.  The API cannot set them."""
        self._state.receiver(webhook_id).headers = dict(headers)

    def set_delivery_version(self, webhook_id: str, version: Version) -> None:
        """Set the payload version of a webhook.  Its record does not show it; the default is "v1"."""
        self._state.receiver(webhook_id).version = version

    # What happened

    @property
    def inspect_url(self) -> str:
        """
        Address of a live page of arrivals and their effects.

        The page is served from the first use of this property on (with ``inspect=True``, from the start), to
        this machine only.  With ``admin=True`` it can also script faults.
        """
        self._is_inspected = True
        return self._root + inspector.PATH

    @property
    def pages(self) -> dict[str, str]:
        """Addresses of what is enabled beside the API: ``admin_url`` and ``inspect_url``."""
        found = {"admin_url": f"{self._root}/_simulator/"} if self._admin else {}
        if self._is_inspected:
            return found | {"inspect_url": self.inspect_url}
        return found

    def arrivals(self, operation: str | None = None) -> int:
        """Return how many requests of *operation*, or of all, reached the service completely."""
        return self.ledger.arrivals(operation)

    async def arrived(self, operation: str, n: int = 1) -> None:
        """Wait until *n* requests of *operation* have arrived since the start."""
        await self.ledger.arrived(operation, n)

    # Credentials

    def issue_key(
        self,
        *,
        team: str | None = None,
        livemode: bool = True,
        role: Role = "admin",
        modules: frozenset[str] = MODULES,
        in_token: bool = True,
    ) -> str:
        """Make an API key.  `in_token=False` leaves the team out of it, which the service refuses."""
        selected = None
        if in_token:
            selected = team or self.team
        return self._keyring.issue(
            IssuedToken("key", selected, livemode, "usr_1", role, modules)
        )

    def issue_oauth_token(
        self, *, team: str | None = None, livemode: bool = True
    ) -> str:
        """Make an OAuth access token, bound to its team."""
        return self._keyring.issue(
            IssuedToken("oauth", team or self.team, livemode, "usr_1")
        )

    def issue_person_token(
        self,
        *,
        user: str = "usr_1",
        team: str | None = None,
        role: Role = "admin",
    ) -> str:
        """Make a person's token.  Its data mode is the person's stored preference."""
        return self._keyring.issue(
            IssuedToken("person", team or self.team, True, user, role)
        )

    def revoke(self, token: str) -> None:
        """Revoke *token*."""
        self._keyring.issued[token].standing = "revoked"

    def expire(self, token: str) -> None:
        """Expire *token*."""
        self._keyring.issued[token].standing = "expired"
