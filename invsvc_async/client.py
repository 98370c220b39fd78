"""
Hold one client's settings and its resources; never build a request.
"""

from __future__ import annotations

import os
import re
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias
from urllib.parse import urlsplit

import attrs

from invsvc_async._errors import ConfigurationError
from invsvc_async._version import __version__
from invsvc_async.concurrency.clock import Clock, SystemClock
from invsvc_async.concurrency.retry_quota import RetryQuota
from invsvc_async.models.common import UNSET
from invsvc_async.settings import ParameterNames, ReadRetries, ReconcilePolicy, Timeouts
from invsvc_async.transport.credentials import Credential, credential_from
from invsvc_async.transport.session import ClientOptions, ClientState
from invsvc_async.transport.transport import BUILT_ON, MAX_RESPONSE_BYTES, Transport
from invsvc_async.transport.write_register import WriteRegister

if TYPE_CHECKING:
    import ssl as tls
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    import aiohttp

    from invsvc_async.codec.envelope import Envelope
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.models.common import Unset
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.resources.invoices import Invoices
    from invsvc_async.resources.journeys import Journeys
    from invsvc_async.resources.payments import Payments
    from invsvc_async.resources.retentions import Retentions
    from invsvc_async.resources.sheets import Sheets
    from invsvc_async.resources.teams import Teams
    from invsvc_async.resources.unlisted import ByteStream, Unlisted
    from invsvc_async.resources.users import Users
    from invsvc_async.resources.webhooks import Webhooks
    from invsvc_async.transport.journal import Journal
    from invsvc_async.transport.session import AttemptReport, DecisionReport
    from invsvc_async.writes.write import Write

__all__ = ["Client", "Reader", "options_of"]

# What finds out about a write that has no read of its own.  Any: a finding; for journeys, a Journey too
Reader: TypeAlias = "Callable[[Client, Intent], Awaitable[Any]]"

LOOPBACK = re.compile(r"localhost|127(\.\d{1,3}){3}|::1")
_VERSION = re.compile(r"/v\d+$")
_SETTINGS: dict[str, type] = {  # by the names of a view
    "timeouts": Timeouts,
    "reads": ReadRetries,
    "reconcile": ReconcilePolicy,
    "names": ParameterNames,
}
_OURS_TO_SET = (
    "authorization",
    "content-type",
    "content-length",
    "content-encoding",
    "expect",
    "host",
    "transfer-encoding",
)


class Client:
    """
    The service, as one application sees it: one credential, one pool of connections, one loop.

    Make one for each application and share it: it is safe under thousands of tasks.  ``async with`` it, or
    call :meth:`aclose`. Times are in seconds.  ``max_concurrency`` bounds the requests in flight;
    ``"adaptive"`` finds the bound by watching the service.  ``max_response_bytes`` bounds a body as received
    and as unfolded.  ``headers`` and ``user_agent`` go with each request.  ``session`` is the application's
    own ``aiohttp.ClientSession``: used, never closed; ``ssl`` and ``trust_env`` (proxies of the environment)
    are for the client's own.  ``allow_insecure_http`` admits plain HTTP to another machine.  ``journal``
    names a file that stores each write before its first byte.  The hooks get metadata only: ``on_attempt`` of
    each request, ``on_decision`` of each decision about a write, ``on_unsettled`` the intent of each write
    whose fate is open.  ``clock`` is for tests.

    Raises:
        ConfigurationError: Something given cannot work, in words.

    Spec: Authentication.

    """

    def __init__(  # noqa: PLR0913 - each is a setting of its own
        self,
        base_url: str,
        credential: Credential,
        *,
        team: str | None = None,
        timeout: Timeouts = Timeouts(),  # noqa: B008 - frozen
        reads: ReadRetries = ReadRetries(),  # noqa: B008 - frozen
        reconcile: ReconcilePolicy = ReconcilePolicy(),  # noqa: B008 - frozen
        names: ParameterNames = ParameterNames(),  # noqa: B008 - frozen
        max_concurrency: int | Literal["adaptive"] = 100,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        journal: str | Path | Journal | None = None,
        session: aiohttp.ClientSession | None = None,
        ssl: tls.SSLContext | aiohttp.Fingerprint | bool | None = None,
        headers: Mapping[str, str] | None = None,
        user_agent: str | None = None,
        trust_env: bool = False,
        allow_insecure_http: bool = False,
        on_attempt: Callable[[AttemptReport], None] | None = None,
        on_decision: Callable[[DecisionReport], None] | None = None,
        on_unsettled: Callable[[Intent], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not isinstance(credential, Credential):
            raise ConfigurationError(
                "the credential must be ApiKey(…), OAuthToken(…), PersonToken(…) or TokenProvider(…)"
            )
        clock = clock or SystemClock()
        transport = Transport(
            max_concurrency=max_concurrency,
            session=session,
            ssl=ssl,
            trust_env=trust_env,
            max_response_bytes=max_response_bytes,
            clock=clock,
        )
        shared = ClientState(
            transport=transport,
            clock=clock,
            base_url=_checked_url(base_url, allow_insecure_http=allow_insecure_http),
            credential=credential,
            client_of=self.of,
            headers=_headers(headers, user_agent),
            quota=RetryQuota(),
            writes=WriteRegister(is_of_one_mode=credential.kind != "person_token", journal=_journal(journal)),
            on_attempt=on_attempt,
            on_decision=on_decision,
            on_unsettled=on_unsettled,
        )
        self._view = _checked(
            ClientOptions(
                session=shared, timeouts=timeout, reads=reads, reconcile=reconcile, names=names, team=team
            )
        )

    @classmethod
    def of(cls, view: ClientOptions) -> Self:
        """Make a client of an existing view; it shares everything with the one that the view is of."""
        client = cls.__new__(cls)
        client._view = view
        return client

    @classmethod
    def from_env(cls, *, profile: str | None = None, **settings: Any) -> Self:  # Any: those of Client
        """
        Make a client from the environment, and from a profile of ``invsvc.toml``.

        Reads ``INVSVC_BASE_URL``; one of ``INVSVC_API_KEY``, ``INVSVC_OAUTH_TOKEN`` and
        ``INVSVC_PERSON_TOKEN``; ``INVSVC_TEAM``; ``INVSVC_PROFILE`` (or *profile*) names a table
        ``[profiles.NAME]`` of ``invsvc.toml`` in this directory (``INVSVC_CONFIG`` names another file), with
        ``base_url``, ``team``, ``allow_insecure_http`` and the tables ``names`` and ``reconcile``; without a
        name, the file's ``default_profile`` is taken.  The environment goes before the file; *settings* go
        before both.

        Raises:
            ConfigurationError: Something is missing or contradictory; it says what to set.

        """
        from invsvc_async.profiles import FILE, from_environment

        found: dict[str, Any] = {**from_environment(os.environ, profile), **settings}  # Any: as above
        if "base_url" not in found:
            raise ConfigurationError(f"set INVSVC_BASE_URL, or base_url in a profile of {FILE}")
        if found.get("credential") is None:
            found["credential"] = credential_from(
                api_key=os.environ.get("INVSVC_API_KEY"),
                oauth_token=os.environ.get("INVSVC_OAUTH_TOKEN"),
                person_token=os.environ.get("INVSVC_PERSON_TOKEN"),
            )
        return cls(**found)

    def __repr__(self) -> str:
        view = self._view
        return f"Client({view.session.base_url!r}, {view.session.credential!r}, team={view.team!r})"

    # --- views

    def with_options(
        self,
        *,
        timeout: Timeouts | Unset = UNSET,
        reads: ReadRetries | Unset = UNSET,
        reconcile: ReconcilePolicy | Unset = UNSET,
        names: ParameterNames | Unset = UNSET,
        team: str | None | Unset = UNSET,
    ) -> Self:
        """
        Give a cheap view on the same pool with other options; closing it closes the pool.

        Raises:
            ConfigurationError: An option is not of its kind.

        """
        asked = {"timeouts": timeout, "reads": reads, "reconcile": reconcile, "names": names, "team": team}
        changed: dict[str, Any] = {  # Any: each has the type of its argument
            name: value for name, value in asked.items() if value is not UNSET
        }
        return self.of(_checked(attrs.evolve(self._view, **changed)))

    def for_team(self, team: str) -> Self:
        """
        Give a view that acts on *team* (Connect): only API keys with that plan feature may; its 403 comes
        through.

        Spec: Authentication, 4.
        """
        return self.with_options(team=team)

    # --- resources

    @cached_property
    def journeys(self) -> Journeys:
        """Workflow graphs."""
        from invsvc_async.resources.journeys import Journeys

        return Journeys(self._view)

    @cached_property
    def invoices(self) -> Invoices:
        """Invoice lists and downloads of the tax authority."""
        from invsvc_async.resources.invoices import Invoices

        return Invoices(self._view)

    @cached_property
    def retentions(self) -> Retentions:
        """Files of stamped retentions."""
        from invsvc_async.resources.retentions import Retentions

        return Retentions(self._view)

    @cached_property
    def teams(self) -> Teams:
        """Teams and their table-database integration."""
        from invsvc_async.resources.teams import Teams

        return Teams(self._view)

    @cached_property
    def users(self) -> Users:
        """Users and the caller's preferences."""
        from invsvc_async.resources.users import Users

        return Users(self._view)

    @cached_property
    def payments(self) -> Payments:
        """Payment links and reminder operations."""
        from invsvc_async.resources.payments import Payments

        return Payments(self._view)

    @cached_property
    def sheets(self) -> Sheets:
        """The spreadsheet import."""
        from invsvc_async.resources.sheets import Sheets

        return Sheets(self._view)

    @cached_property
    def webhooks(self) -> Webhooks:
        """The addresses that events are delivered to."""
        from invsvc_async.resources.webhooks import Webhooks

        return Webhooks(self._view)

    # --- what the table does not list

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,  # Any: texts, whole numbers, booleans
        json: Wire = UNSET,
        team: str | None = None,
    ) -> Envelope:
        """
        Read anything else, retried as reads are, and give the envelope, its ``data`` plain with exact
        numbers.

        *method* is GET: what may change something goes through ``write``.  *path* is relative to the base
        URL.

        Raises:
            InvalidRequestError: The method is not GET, or the path leaves the base URL; nothing was sent.
            ServiceError, TransportError, DeadlineExceededError: As of any read.

        Spec: Endpoints.

        """
        return await self._unlisted.read(method, path, params, json, team)

    def write(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,  # Any: texts, whole numbers, booleans
        json: Wire = UNSET,
        reader: Reader | None = None,
        team: str | None = None,
    ) -> Write[Any]:  # Any: the payload, plain
        """
        Send any other write under the rules of all writes, and give its payload as plain data.

        *method* is POST, PUT, PATCH or DELETE; *path* is relative to the base URL.
        When the answer is lost, *reader* (an async callable of the client and the intent that returns a
        finding) finds out what became of it; without one the verdict is UNKNOWN at once.

        Raises:
            InvalidRequestError: The method reads, or the path leaves the base URL; nothing was sent.
            ServiceError: The service said no.
            WriteNotAppliedError: It provably did not happen.
            AmbiguousWriteError: The answer was lost, and nothing that was read tells.

        Spec: Endpoints.

        """
        return self._unlisted.write(method, path, params, json, reader, team)

    def download(
        self, path: str, *, params: Mapping[str, Any] | None = None, team: str | None = None
    ) -> ByteStream:
        """
        Stream bytes that have no envelope, such as a package of the tax authority; iterate over it, or
        ``await .read()``.

        It is sent once, when it is iterated over; ``Timeouts.attempt`` bounds the wait for the answer, and
        then for each next part.

        Raises:
            InvalidRequestError: The path leaves the base URL; nothing was sent.
            ServiceError, NotSentError, ResponseLostError: While it is read.

        Spec: Endpoints, Invoices.

        """
        return self._unlisted.download(path, params, team)

    @cached_property
    def _unlisted(self) -> Unlisted:
        from invsvc_async.resources.unlisted import Unlisted

        return Unlisted(self._view)

    # --- writes whose fate is open

    @property
    def unsettled(self) -> tuple[Intent, ...]:
        """
        The intents of this client whose fate is open (cancelled in flight, unknown), oldest first; 10,000 at
        most.
        """
        return tuple(self._view.session.writes.left_open.unsettled.values())

    async def settle(
        self, intent: Intent, *, reader: Reader | None = None, same_mode: bool = False
    ) -> Outcome[Any]:  # Any: the intent's operation says what the value is
        """
        Find out, later or elsewhere, what became of a write that was sent; it only reads, so twice is
        harmless.

        *reader* is the caller's own where the write had one.  ``same_mode=True`` is the caller's word that
        the intent belongs to this credential's team and data mode, where neither an answer nor the credential
        itself can show it.

        Raises:
            InvalidRequestError: The intent belongs to another base URL, team, data mode or credential.

        """
        from invsvc_async.writes.recovery import settled

        return await settled(self._view, intent, reader=reader, same_mode=same_mode)

    def resume(
        self, intent: Intent, *, reader: Reader | None = None, same_mode: bool = False
    ) -> Write[Any]:  # Any: the intent's operation says what the value is
        """
        Settle first, then send again if that proved the write absent; nothing is sent before it is awaited.

        Raises:
            InvalidRequestError: The intent belongs to another base URL, team, data mode or credential.

        """
        from invsvc_async.writes.recovery import resumed

        return resumed(self._view, intent, reader=reader, same_mode=same_mode)

    async def recover(
        self, *, same_mode: bool = False
    ) -> list[Outcome[Any]]:  # Any: each intent's operation says what its value is
        """
        Settle what a process before this one left in the journal, many at once; it only reads.

        An intent of another base URL, team, data mode or credential is logged as an error and stays in the
        journal.  *same_mode* is the caller's word as in :meth:`settle`: say it when the credential is a new
        one.

        Raises:
            ConfigurationError: The client has no journal.
            JournalError: The journal is held by another process, damaged, or of a newer version.

        """
        journal = self._view.session.writes.journal
        if journal is None:
            raise ConfigurationError(
                "there is nothing to recover from: make the client with journal='outbox.db'"
            )
        await journal.open()
        from invsvc_async.writes.recovery import recovered

        return await recovered(self._view, journal, same_mode=same_mode)

    # --- life

    async def __aenter__(self) -> Self:
        if self._view.session.writes.journal is not None:
            await self._view.session.writes.journal.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """
        Close the connections (never a session of the application's); what is in flight ends, and its intents
        stay.
        """
        await self._view.session.aclose()


def options_of(client: Client) -> ClientOptions:
    """Return the options of *client*, which other modules of this package work with."""
    return client._view


def _checked_url(text: object, *, allow_insecure_http: bool) -> str:
    if not isinstance(text, str):
        raise ConfigurationError(f"base_url must be a text, not {type(text).__name__}")
    try:
        parts = urlsplit(text)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise ConfigurationError(f"base_url is not a URL: {error}") from None
    path = parts.path.rstrip("/")
    problems = [
        (
            parts.scheme not in ("http", "https") or not host,
            "must begin with https:// (or http://) and name a host",
        ),
        (bool(parts.username or parts.password), "must carry no credentials: pass ApiKey(…) or the like"),
        (
            bool(parts.query or parts.fragment) or "?" in text or "#" in text,
            "must carry no query or fragment",
        ),
        (not _VERSION.search(path), "must end in the version segment, such as https://host.example/v2"),
        (
            parts.scheme == "http" and not LOOPBACK.fullmatch(host or "") and not allow_insecure_http,
            "is plain http to a host that is not this machine: use https, or say allow_insecure_http=True",
        ),
        (any(ord(char) <= 32 or ord(char) == 127 for char in text), "holds a space or control character"),
    ]
    wrong = [words for found, words in problems if found]
    if wrong:
        raise ConfigurationError(f"base_url {'; '.join(wrong)}")
    place = f"[{host}]" if host and ":" in host else host
    return f"{parts.scheme}://{place}{f':{port}' if port else ''}{path}"


def _checked(view: ClientOptions) -> ClientOptions:
    for name, kind in _SETTINGS.items():
        given: object = getattr(view, name)
        if not isinstance(given, kind):
            called = "timeout" if kind is Timeouts else name
            raise ConfigurationError(f"{called} must be {kind.__name__}(…), not {type(given).__name__}")
    team: object = view.team
    if team is not None and (not isinstance(team, str) or not team or not team.isprintable()):
        raise ConfigurationError("team must be a team's id, as text")
    return view


def _headers(extra: Mapping[str, str] | None, user_agent: str | None) -> dict[str, str]:
    ours = user_agent or f"invsvc-async/{__version__} {BUILT_ON}"
    headers = {"Accept": "application/json", "User-Agent": ours, **(extra or {})}
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ConfigurationError("headers and user_agent: names and values must be text")
        if name.lower() in _OURS_TO_SET:
            raise ConfigurationError(f"headers: {name} is set by the client itself")
        if not value.isprintable():
            raise ConfigurationError(f"headers: the value of {name} holds a line break or control character")
    return headers


def _journal(given: str | Path | Journal | None) -> Journal | None:
    if given is None or not isinstance(given, (str, PathLike)):
        return given
    from invsvc_async.journal.outbox import Outbox

    return Outbox(given)
