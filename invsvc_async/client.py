"""The client: the settings, the resources, and the methods that settle writes."""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from importlib import import_module
from os import PathLike
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    Self,
    TypeAlias,
    Unpack,
    cast,
)
from urllib.parse import SplitResult, urlsplit

import msgspec

from invsvc_async._version import __version__
from invsvc_async.concurrency.clock import Clock, SystemClock
from invsvc_async.concurrency.pace import SharedPace
from invsvc_async.errors import (
    ConfigurationError,
    DeadlineExceededError,
    ServiceError,
    TransportError,
    takes_secrets,
)
from invsvc_async.models.unset import UNSET, Unset
from invsvc_async.settings import (
    ParameterNames,
    ReadRetries,
    ReconcilePolicy,
    Timeouts,
    check_hooks,
    check_on_secret,
    check_rate,
    checked_headers,
    warn_if_never_sent_again,
)
from invsvc_async.transport.client_core import (
    AttemptReport,
    ClientCore,
    ClientOptions,
    DecisionReport,
    PreparedHeaders,
)
from invsvc_async.transport.credentials import Credential, credential_from
from invsvc_async.transport.transport import BUILT_ON, MAX_RESPONSE_BYTES, Transport
from invsvc_async.transport.under_way import UnderWay
from invsvc_async.writes.register import WriteRegister

if TYPE_CHECKING:
    import ssl as tls
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
    from decimal import Decimal
    from pathlib import Path
    from types import TracebackType

    import aiohttp

    from invsvc_async.client_arguments import (
        ClientArguments as ClientArguments,  # noqa: PLC0414 - exported
        ClientKeywords as ClientKeywords,  # noqa: PLC0414 - exported
        ClientSettings as ClientSettings,  # noqa: PLC0414 - exported
    )
    from invsvc_async.codec.envelope import Envelope
    from invsvc_async.codec.exact_json import Wire, WireObject
    from invsvc_async.durable.keys import Keys
    from invsvc_async.models.common import Model
    from invsvc_async.models.webhooks import Webhook
    from invsvc_async.profiles import Profile
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.resources.invoices import Invoices
    from invsvc_async.resources.journeys import Journeys
    from invsvc_async.resources.payments import Payments
    from invsvc_async.resources.raw_requests import ByteStream, Unlisted
    from invsvc_async.resources.retentions import Retentions
    from invsvc_async.resources.sheets import Sheets
    from invsvc_async.resources.teams import Teams
    from invsvc_async.resources.users import Users
    from invsvc_async.resources.webhooks import Webhooks
    from invsvc_async.settings import CallOptions
    from invsvc_async.writes.journal import Journal
    from invsvc_async.writes.write import Write


# Settles a write that the service has no read for.  Any: a finding; for journeys, a Journey too
Reader: TypeAlias = "Callable[[Client, Intent], Awaitable[Any]]"

# Compiled at first use, because compilation would be a part of the import's time.
LOOPBACK = r"localhost|127(\.\d{1,3}){3}|::1"
_VERSION = r"/v\d+$"
_SCHEMES = ("http", "https")
_SETTINGS: dict[str, type] = {  # by the names in ClientOptions
    "timeouts": Timeouts,
    "reads": ReadRetries,
    "reconcile": ReconcilePolicy,
    "names": ParameterNames,
}


def _resource(what: str) -> Any:  # Any: the attribute names the class
    """Return a property for the resource of the attribute's name, which is imported at its first use."""

    def made(client: Client) -> object:
        module = import_module(f"invsvc_async.resources.{lazy.attrname}")
        return getattr(module, str(lazy.attrname).capitalize())(client._view)

    made.__doc__ = what
    lazy = cached_property(made)
    return lazy


def __getattr__(name: str) -> object:
    """Import a type of the arguments, which a program needs only in its own annotations."""
    if name in ("ClientArguments", "ClientKeywords", "ClientSettings"):
        return getattr(import_module("invsvc_async.client_arguments"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Client:
    """
    A client of the service, with one credential, one pool of connections and one event loop.

    Make one for each application and share it among all tasks. Use it with ``async with``, or call
    :meth:`aclose`. Times are in seconds.

    ``max_concurrency`` limits the requests in flight; ``"adaptive"`` finds the limit by watching the service.
    ``rate`` is how many new writes may begin in a second, spread evenly; processes that share a journal in
    PostgreSQL divide it. Reads, and what is sent again, do not count; batches and outboxes have a ``rate`` of
    their own. ``max_response_bytes`` limits a body, both as received and decompressed. ``headers`` and
    ``user_agent`` are sent with each request. ``session`` is a user-supplied ``aiohttp.ClientSession``; the
    client does not close it. ``ssl`` and ``trust_env`` (proxies from the environment) configure the client's
    own session, as does ``proxy``, the URL of an HTTP proxy, whose user and password are in no log, repr or
    error.
    ``allow_insecure_http`` allows plain HTTP to another machine. ``journal`` is a file, or the address of a
    PostgreSQL database that processes share (``postgresql://…``), in which each write is stored before its
    first byte is sent. With ``?starts_away=true`` in that address, the client also starts while the database
    is away, and refuses writes until it is back.

    ``INVSVC_LOG=debug`` (or ``info``, ``warning``, ``error``) in the environment logs to stderr: each request
    and each decision, without bodies and credentials.

    The hooks get metadata only: ``on_attempt`` is called for each request, ``on_decision`` for each decision
    about a write, and ``on_unsettled`` with the intent of each write whose outcome is unknown. But
    ``on_secret``, which may be async, is called with the key and the webhook of each create, with its secret,
    before the verdict is stored; after a kill perhaps again. If it raises, the await raises that:
    the write is applied, and its secret lost. ``clock`` is for tests.

    Raises:
        ConfigurationError: A setting cannot work.

    Spec: Authentication.
    """

    @takes_secrets
    def __init__(
        self,
        base_url: str,
        credential: Credential,
        *,
        team: str | None = None,
        timeout: Timeouts = Timeouts(),
        reads: ReadRetries = ReadRetries(),
        reconcile: ReconcilePolicy = ReconcilePolicy(),
        names: ParameterNames = ParameterNames(),
        max_concurrency: int | Literal["adaptive"] = 100,
        rate: float | None = None,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        journal: str | Path | Journal | None = None,
        session: aiohttp.ClientSession | None = None,
        ssl: tls.SSLContext | aiohttp.Fingerprint | bool | None = None,
        headers: Mapping[str, str] | None = None,
        user_agent: str | None = None,
        trust_env: bool = False,
        proxy: str | None = None,
        allow_insecure_http: bool = False,
        on_attempt: Callable[[AttemptReport], None] | None = None,
        on_decision: Callable[[DecisionReport], None] | None = None,
        on_unsettled: Callable[[Intent], None] | None = None,
        on_secret: Callable[[str, Webhook], Awaitable[None] | None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not isinstance(credential, Credential):
            raise ConfigurationError(
                "credential: must be ApiKey, OAuthToken, PersonToken or TokenProvider"
            )
        check_hooks(
            on_attempt=on_attempt,
            on_decision=on_decision,
            on_unsettled=on_unsettled,
        )
        check_on_secret(on_secret)
        check_rate(rate)
        if "INVSVC_LOG" in os.environ:
            from invsvc_async.transport.debug_log import logged, set_up_logging

            if set_up_logging(os.environ):
                on_attempt = logged(on_attempt)
        clock = clock or SystemClock()
        url = _checked_url(base_url, allow_insecure_http=allow_insecure_http)
        name = f"Client({url!r})"
        most = max_response_bytes
        transport = Transport(
            name,
            max_concurrency,
            session,
            proxy,
            most,
            clock,
            ssl=ssl,
            trust_env=trust_env,
        )
        named = user_agent or f"invsvc-async/{__version__} {BUILT_ON}"
        ours = {"Accept": "application/json", "User-Agent": named}
        sent = checked_headers({**ours, **(headers or {})}, of_client=True)
        is_of_one_mode = credential.kind != "person_token"
        writes = WriteRegister(
            is_of_one_mode=is_of_one_mode,
            journal=_journal(journal),
            clock=clock,
        )
        core = ClientCore(
            transport=transport,
            clock=clock,
            base_url=url,
            credential=credential,
            client_of=self.of,
            headers=PreparedHeaders(sent),
            writes=writes,
            under_way=UnderWay(clock),
            on_attempt=on_attempt,
            on_decision=on_decision,
            on_unsettled=on_unsettled,
            on_secret=on_secret,
        )
        if rate is not None:
            core.pace = SharedPace(rate, core.members)
        # programs share it
        if (bind := getattr(writes.journal, "bind", None)) is not None:
            bind(core)
        view = ClientOptions(
            core=core,
            timeouts=timeout,
            reads=reads,
            reconcile=reconcile,
            names=names,
            team=team,
        )
        self._view = _checked(view)
        warn_if_never_sent_again(reconcile, timeout)

    @classmethod
    def of(cls, view: ClientOptions) -> Self:
        """Make a client with the options *view*. Clients of one core share everything else."""
        client = cls.__new__(cls)
        client._view = view
        return client

    @classmethod
    @takes_secrets
    def from_env(
        cls, *, profile: str | None = None, **settings: Unpack[ClientSettings]
    ) -> Self:
        """
        Make a client from environment variables and a profile in ``invsvc.toml``.

        The variables are ``INVSVC_BASE_URL``, ``INVSVC_TEAM``, ``INVSVC_JOURNAL``, and one of
        ``INVSVC_API_KEY``, ``INVSVC_OAUTH_TOKEN`` and ``INVSVC_PERSON_TOKEN``.

        A profile is a table ``[profiles.NAME]`` of ``invsvc.toml`` in the current directory, or of the file
        that ``INVSVC_CONFIG`` names. Its name is *profile*, ``INVSVC_PROFILE``, or the file's
        ``default_profile``. It may contain ``base_url``, ``team``, ``allow_insecure_http`` and the tables
        ``names`` and ``reconcile``.

        A file in the current directory may be a stranger's.  So it is refused if others can write it, and its
        default profile does not choose where a token of the environment is sent: name the profile for that.

        The environment overrides the file, and *settings* override both.

        Raises:
            ConfigurationError: A setting is missing or contradicts another.
        """
        from invsvc_async.profiles import profile_of

        return cls(**arguments_with(profile_of(os.environ, profile), settings))

    def __repr__(self) -> str:
        view = self._view
        return f"Client({view.core.base_url!r}, {view.core.credential!r}, team={view.team!r})"

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
        Return a client with other options and the same pool. Closing either client closes the pool.

        Raises:
            ConfigurationError: An option has the wrong type.
        """
        asked = {
            "timeouts": timeout,
            "reads": reads,
            "reconcile": reconcile,
            "names": names,
            "team": team,
        }
        changed: dict[str, Any] = {
            name: value for name, value in asked.items() if value is not UNSET
        }
        view = _checked(msgspec.structs.replace(self._view, **changed))
        if not {"timeouts", "reconcile"}.isdisjoint(changed):
            warn_if_never_sent_again(view.reconcile, view.timeouts)
        return self.of(view)

    def for_team(self, team: str) -> Self:
        """
        Return a client that acts on *team* (Connect).

        It needs an API key whose plan has that feature. Otherwise the service answers 403.

        Spec: Authentication, 4.
        """
        return self.with_options(team=team)

    # --- resources

    journeys: Journeys = _resource("Workflow graphs.")
    invoices: Invoices = _resource(
        "Invoice lists, and downloads from the tax authority."
    )
    retentions: Retentions = _resource("Files of stamped retentions.")
    teams: Teams = _resource("Teams and their table-database integration.")
    users: Users = _resource("Users and the caller's preferences.")
    payments: Payments = _resource("Payment links and reminder operations.")
    sheets: Sheets = _resource("The spreadsheet import.")
    webhooks: Webhooks = _resource("Webhooks: the URLs that events are delivered to.")

    # --- operations that the specification does not list

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int | Decimal] | None = None,
        json: Wire = UNSET,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> Envelope:
        """
        Read any other path, with the retries of all reads, and return the envelope.

        Its ``data`` is plain data with exact numbers. *method* is GET; anything else goes through ``write``.
        *path* is relative to the base URL.

        Raises:
            InvalidRequestError: The method is not GET, or the path leaves the base URL; nothing was sent.
            ServiceError, TransportError, DeadlineExceededError: As of any read.

        Spec: Endpoints.
        """
        return await self._unlisted.read(
            method,
            path,
            params=params,
            json=json,
            team=team,
            options=options,
        )

    def write(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int | Decimal] | None = None,
        json: Wire = UNSET,
        reader: Reader | None = None,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> Write[Wire]:
        """
        Make any other write, under the rules of all writes. Its value is the payload as plain data.

        *method* is POST, PUT, PATCH or DELETE; *path* is relative to the base URL. *reader* settles the write
        if its answer is lost: an async callable that takes (client, intent) and returns a finding. Without
        one the verdict is then UNKNOWN at once.

        Raises:
            InvalidRequestError: The method reads, or the path leaves the base URL; nothing was sent.
            ServiceError: The service refused it.
            WriteNotAppliedError: It provably did not happen.
            AmbiguousWriteError: The answer was lost, and no read shows the outcome.

        Spec: Endpoints.
        """
        return self._unlisted.write(
            method,
            path,
            reader=reader,
            params=params,
            json=json,
            team=team,
            options=options,
        )

    # Any: JSON, and as in `write`
    def write_from(self, line: Mapping[str, Any] | str | bytes) -> Write[Any]:
        """
        Make the write that *line* describes, which is a mapping or JSON text. Nothing is sent yet.

        It is ``{"operation": "webhooks.create", "arguments": {…}, "key": "row-17"}``: a line of a batch's
        file, or what :meth:`Write.to_line` returned in another process. The arguments are those of the method
        of that name. The key may be left out.

        Raises:
            InvalidRequestError: It is no such line, or its arguments break the specification.
            ConfigurationError: The operation does not accept the client's kind of credential.
        """
        from invsvc_async.resources.by_name import write_from

        return write_from(self, line)

    def download(
        self,
        path: str,
        *,
        params: Mapping[str, str | int | Decimal] | None = None,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> ByteStream:
        """
        Stream bytes that have no envelope, such as a package of the tax authority.

        Iterate over the result, or ``await .read()``. The request is sent then, once. ``Timeouts.attempt``
        limits the wait for the answer, and the wait for each further part.

        Raises:
            InvalidRequestError: The path leaves the base URL; nothing was sent.
            ServiceError, NotSentError, ResponseLostError: While it is read.

        Spec: Endpoints, Invoices.
        """
        return self._unlisted.download(
            path,
            params=params,
            team=team,
            options=options,
        )

    @cached_property
    def _unlisted(self) -> Unlisted:
        from invsvc_async.resources.raw_requests import Unlisted

        return Unlisted(self._view)

    # --- writes with an unknown outcome

    @property
    def unsettled(self) -> tuple[Intent, ...]:
        """
        The intents of writes whose outcome is unknown, or that were cancelled in flight.

        The oldest is first. At most 10,000 are kept.
        """
        return tuple(
            each.intent
            for each in self._view.core.writes.open_writes.unsettled.values()
        )

    async def settle(
        self,
        intent: Intent,
        *,
        reader: Reader | None = None,
        same_mode: bool = False,
    ) -> Outcome[Any]:  # Any: the intent's operation says what the value is
        """
        Find out the outcome of a write that was sent earlier, or by another process. It only reads.

        If the write has a key in the client's journal, its verdict is stored there, or returned from there. A
        run of the key that is under way, here or in another process, may send it again, so it is waited for.
        A run that begins later may do so after this has returned: to write again, await the same key.

        *reader* is the one that the write had, or one for a write that had none and whose operation has no
        read in the specification. ``same_mode=True`` asserts that the intent belongs to this credential's
        team and data mode, in case neither an answer nor the credential shows it.

        Raises:
            InvalidRequestError: The intent belongs to another base URL, team, data mode or credential.
            ConfigurationError: The client belongs to another event loop.
        """
        from invsvc_async.writes.recovery import settled

        return await settled(self._view, intent, reader=reader, same_mode=same_mode)

    def resume(
        self,
        intent: Intent,
        *,
        reader: Reader | None = None,
        same_mode: bool = False,
    ) -> Write[Any]:  # Any: the intent's operation says what the value is
        """
        Return a write that settles *intent* first, and sends it again only on proof of absence.

        Nothing is sent before it is awaited. The arguments are those of :meth:`settle`. An intent with a key
        of your own is only settled: its batch or outbox sends it again.

        Without a common journal, resume an intent in one client only: two at once may both send it.

        Raises:
            InvalidRequestError: The intent belongs to another base URL, team, data mode or credential.
        """
        from invsvc_async.writes.recovery import resumed

        return resumed(self._view, intent, reader=reader, same_mode=same_mode)

    # --- keys

    # Any: the operation says what its value is
    async def outcome_of(self, key: str) -> Outcome[Any] | None:
        """
        Return the outcome of the write under *key* in the journal; ``None`` if it has none, or there is none.

        Raises:
            ConfigurationError: The client has no journal, or the namespace of its keys is not certain.
            KeyConflictError: The key is of another team or base URL, in a namespace that has a name.
            JournalError: The journal cannot be used.
        """
        return await self._keys("outcome_of").outcome_of(key, self._view.team)

    async def resolve(
        self,
        key: str | Intent,
        *,
        applied: bool | str | Model | WireObject,
        because: str,
        by: str | None = None,
    ) -> Outcome[Any]:  # Any: the operation says what its value is
        """
        Store what you have found out about a write in the journal as its verdict, and return the outcome.

        That is the way on for a write that is UNKNOWN and that no read can settle any more: look, for example
        in the dashboard, and say what happened. *key* is that of a keyed write, or the intent of any write.

        *applied* is False, True, or what the write made or changed: its id, or the model that you have read.
        The outcome has that as its value; of an id, an object with no other field. Nothing is read.
        *because* says how you know it, and *by* who you are (by default, login and host of this process).
        They are in ``outcome.evidence.person``, with the time, and in its message.

        APPLIED is final: every later run under the key returns that outcome. After NOT_APPLIED, the next run
        under the key sends the write.

        If another process has the write, in PostgreSQL, and gives no sign of life, this waits for as long as
        one may be silent (10 s by default), to be certain that nothing is sent any more. If the writes of
        such a process were taken over less long ago, this is refused: look again once the error says so.

        Raises:
            ConfigurationError, KeyConflictError: As :meth:`outcome_of`.
            InvalidRequestError: The arguments do not say what was found, or name another thing.
            JournalError: The write is not there, a run of it lives, its verdict is final, nothing of it was
                sent, or the journal cannot be used. Nothing was stored.
        """
        from invsvc_async.durable.resolve import resolution

        finding = resolution(applied, because, by)
        return await self._keys("resolve").resolve(key, self._view.team, finding)

    async def forget(self, key: str) -> bool:
        """
        Delete *key* from the journal, with its outcome; return whether it was there.

        The next write under it is a new one. So forget only a write of which you know that it did nothing,
        or whose second effect you want. If it is UNKNOWN, and had happened, its next run makes a second one:
        store what you find with :meth:`resolve` instead.

        Raises:
            ConfigurationError, KeyConflictError: As :meth:`outcome_of`.
            JournalError: The write may have been sent and has no verdict, or the journal cannot be used.
        """
        return await self._keys("forget").forget(key, self._view.team)

    async def prune(self, *, older_than: float) -> int:
        """
        Delete keys whose writes were done more than *older_than* seconds ago; return how many.

        UNKNOWN ones stay. A write that is run again under a deleted key is a new one.

        Ages are by the clock of the journal's database; in a file by that of this machine. Neither counts for
        later than the service's clock. If no answer in the last ten minutes has shown that, it is read once;
        if the service does not answer, the other clock alone counts.

        Raises:
            ConfigurationError: The client has no journal.
            InvalidRequestError: *older_than* is no number of seconds.
            JournalError: The journal cannot be used.
        """
        keys = self._keys("prune")
        await self._show_clock()
        return await keys.prune(older_than)

    async def _show_clock(self) -> None:
        """Read something if no answer has shown the service's clock yet."""
        core = self._view.core
        if (
            core.server_clock.bounds(core.clock.now(), self._view.reconcile.clock_slack)
            is None
        ):
            with suppress(TransportError, ServiceError, DeadlineExceededError):
                await self.with_options(reads=ReadRetries(attempts=1)).webhooks.list(
                    limit=1
                )

    def _keys(self, what: str) -> Keys:
        from invsvc_async.writes.journal import keys_of

        keys: Keys | None = keys_of(self._checked_journal(what))
        if keys is None:
            raise ConfigurationError(
                f"{what}: this client's journal keeps no keys. Use a path or postgresql://…."
            )
        return keys

    async def recover(
        self, *, same_mode: bool = False
    ) -> list[Outcome[Any]]:  # Any: each intent's operation says what its value is
        """
        Settle all intents that dead processes left in the journal, and return the outcomes. It only reads.

        Verdicts that the application of such a process has not had are returned too. In a file, what is left
        is that of the process before. In PostgreSQL, it is that of processes of this base URL and credential
        that have given no sign of life for a while (``silence=SECONDS`` in the address, default 10).

        An intent of another base URL, team, data mode or credential is logged as an error and stays in the
        journal. *same_mode* is as in :meth:`settle`: pass it if the credential is a new one.

        Raises:
            ConfigurationError: The client has no journal.
            JournalError: Another process uses the file, it is damaged or of a newer version, or the database
                stayed away.
        """
        journal = self._checked_journal("recover")
        await journal.open()
        from invsvc_async.writes.recovery import recovered

        return await recovered(self._view, journal, same_mode=same_mode)

    @asynccontextmanager
    async def recovering(
        self,
        *,
        every: float = 10.0,
        on_outcome: Callable[[Outcome[Any]], Awaitable[None] | None]
        | None = None,  # Any: as in recover
        same_mode: bool = False,
    ) -> AsyncGenerator[None]:
        """
        Do what :meth:`recover` does, at once and *every* so many seconds, while the block runs.

        *on_outcome* gets each outcome, and may be async. If it raises, that is logged, and it gets the
        outcome again. Without it, open intents are settled, and :meth:`recover` returns the verdicts. Errors
        are logged.

        Raises:
            ConfigurationError: The client has no journal.
            JournalError: As :meth:`recover`, when the block begins.
        """
        journal = self._checked_journal("recovering")
        await _start(journal)
        from invsvc_async.writes.recovery import recover_on

        task = asyncio.create_task(
            recover_on(
                self._view,
                journal,
                every=every,
                same_mode=same_mode,
                on_outcome=on_outcome,
            )
        )
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    def _checked_journal(self, what: str) -> Journal:
        journal = self._view.core.writes.journal
        if journal is None:
            raise ConfigurationError(
                f"{what}: this client has no journal. Make it with journal='journal.db'."
            )
        return journal

    # --- life

    @property
    def journal_problem(self) -> str | None:
        """
        Why the journal's database has not been reached since the start; ``None`` once it has.

        For a health check, with ``starts_away=true`` in the address of the journal.
        """
        return getattr(self._view.core.writes.journal, "problem", None)

    async def __aenter__(self) -> Self:
        if self._view.core.writes.journal is not None:
            try:
                await _start(self._view.core.writes.journal)
            except asyncio.CancelledError:
                # nobody else will: the journal's thread would keep the file
                await self.aclose()
                raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """
        Close the connections and the journal, but not a user-supplied session.

        Requests, waits and reads end at once. When this returns, each write that was under way has its
        verdict, was never sent, or is in ``unsettled``; no settle window is waited for. An ``on_secret`` that
        is under way has 10 s more; then it is cancelled, which is logged, and the outcome says whether the
        secret is lost. One that goes on all the same is not waited for, which is logged, too. A second call
        returns once the first has closed the journal.
        """
        await self._view.core.aclose()


async def _start(journal: Journal) -> None:
    """Open *journal*; a journal of this package may start while its database is away."""
    start = getattr(journal, "start", journal.open)
    await start()


@takes_secrets
def arguments_with(taken: Profile | None, settings: ClientSettings) -> ClientArguments:
    """
    Return the arguments of ``Client``, as ``Client.from_env`` does for *settings* and the profile *taken*.

    Raises:
        ConfigurationError: A setting is missing or contradicts another.
    """
    from invsvc_async.profiles import FILE, settings_of

    has_credential = settings.get("credential") is not None or "base_url" in settings
    found: dict[str, Any] = {  # Any: each has its own type
        **settings_of(os.environ, taken, has_credential=has_credential),
        **settings,
    }
    if "base_url" not in found:
        raise ConfigurationError(
            f"base_url: is not set. Set INVSVC_BASE_URL, or base_url in a profile of {FILE}."
        )
    if found.get("credential") is None:
        found["credential"] = credential_from(os.environ)
    return cast("ClientArguments", found)  # `Client` checks each


def options_of(client: Client) -> ClientOptions:
    """Return the options of *client*, for other modules of this package."""
    return client._view


def _checked_url(text: object, *, allow_insecure_http: bool) -> str:
    if not isinstance(text, str):
        raise ConfigurationError(
            f"base_url: must be a string, not {type(text).__name__}"
        )
    try:
        parts = urlsplit(text)
        port = parts.port
        host = parts.hostname
    except (
        ValueError
    ):  # whose text may be a part of a password that should not be there
        raise ConfigurationError(
            "base_url: is not a URL. Check its host and port."
        ) from None
    wrong = [*_problems_of_url(text, parts, allow_insecure_http=allow_insecure_http)]
    if wrong:
        raise ConfigurationError(f"base_url: {'; '.join(wrong)}")
    if host and ":" in host:
        host = f"[{host}]"
    place = f"{parts.scheme}://{host}"
    if port:
        place += f":{port}"
    return place + parts.path.rstrip("/")


def _problems_of_url(
    text: str,
    parts: SplitResult,
    *,
    allow_insecure_http: bool,
) -> Iterator[str]:
    """Yield what is wrong with the base URL *text*, whose *parts* are given."""
    host = parts.hostname
    if parts.scheme not in _SCHEMES or not host:
        yield "must start with https:// (or http://) and name a host"
    if parts.username or parts.password:
        yield "must not contain credentials (pass ApiKey(…) instead)"
    if not {"?", "#"}.isdisjoint(text):
        yield "must not have a query or fragment"
    if not re.search(_VERSION, parts.path.rstrip("/")):
        yield "must end in the version segment, such as https://host.example/v2"
    is_local = re.fullmatch(LOOPBACK, host or "") is not None
    if parts.scheme == "http" and not (allow_insecure_http or is_local):
        yield "is plain http to another machine (use https, or allow_insecure_http=True)"
    if re.search(r"[\x00-\x20\x7f]", text):
        yield "contains a space or control character"


def _checked(view: ClientOptions) -> ClientOptions:
    for name, kind in _SETTINGS.items():
        given: object = getattr(view, name)
        if not isinstance(given, kind):
            called = "timeout" if kind is Timeouts else name
            raise ConfigurationError(
                f"{called}: must be {kind.__name__}(…), not {type(given).__name__}"
            )
    team: object = view.team
    if team is not None:
        from invsvc_async.api.parameters import is_segment

        if not (isinstance(team, str) and team.isprintable() and is_segment(team)):
            raise ConfigurationError("team: must be the id of a team, as a string")
    return view


def _journal(given: str | Path | Journal | None) -> Journal | None:
    if given is None:
        return None
    if isinstance(given, (str, PathLike)):
        from invsvc_async.durable.journal import ClientJournal

        return ClientJournal(given)
    if hasattr(given, "sending"):
        return given
    raise ConfigurationError(
        f"journal: must be a path, postgresql://… or a Journal, not a {type(given).__name__}."
    )
