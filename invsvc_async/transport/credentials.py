"""Credentials: what a client authenticates with.  They are not shown in reprs, logs, errors or pickles."""

from __future__ import annotations

import asyncio
import binascii
import hashlib
import json
from base64 import urlsafe_b64decode
from typing import TYPE_CHECKING, ClassVar, Literal, NoReturn

from invsvc_async.concurrency.cancellation import cancellations, raise_if_cancelled
from invsvc_async.errors import ConfigurationError, takes_secrets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping


CredentialKind = Literal["api_key", "oauth_token", "person_token"]
KINDS: tuple[CredentialKind, ...] = ("api_key", "oauth_token", "person_token")


class Credential:
    """What a client authenticates with.  Spec: Authentication."""

    kind: CredentialKind
    renewable: ClassVar[bool] = False
    ready: str | None  # the value of the Authorization header; None: it must be fetched
    # A fixed token is never fetched; TokenProvider has a slot for its task in place of this. The task has no
    # result, because asyncio's debug mode prints the results of tasks, and this one would be the token.
    _fetching: asyncio.Task[None] | None = None
    __slots__ = ("_team", "ready")

    @takes_secrets
    def __init__(self, text: str) -> None:
        token = _checked(text, type(self).__name__)
        self.ready = f"Bearer {token}"
        self._team = _team_in(token)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(***)"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a credential cannot be pickled. Make a new one where it is needed."
        )

    async def header(self) -> str:
        """Return the value of the Authorization header."""
        assert self.ready is not None
        return self.ready

    async def renew(self, _refused: str | None, /) -> bool:
        """Get a fresh token in place of the refused header. Return False, because a fixed one has none."""
        return False

    @property
    def is_fetching(self) -> bool:
        """Whether a token is being fetched."""
        return self._fetching is not None and not self._fetching.done()

    def fingerprint(self, key: str) -> str | None:
        """Return a digest under *key*. Credentials have different digests, which do not reveal them."""
        if self.ready is None:
            return None
        token = self.ready.removeprefix("Bearer ").encode()
        return hashlib.blake2b(token, key=key.encode()[:64], digest_size=12).hexdigest()

    @property
    def team(self) -> str | None:
        """
        The team on which a request without ``team`` acts, as the token says; ``None`` if it does not.

        An API key is a JWT, which names its team.
        """
        return self._team

    async def own_team(self) -> str | None:
        """Return the team of the token, if it names a team; fetch the first token if there is none."""
        return _team_in((await self.header()).removeprefix("Bearer "))


def _team_in(token: str) -> str | None:
    """Return the team that a JWT names; ``None`` if *token* is none, or names none."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    padding = "=" * (-len(parts[1]) % 4)
    try:
        claims = json.loads(urlsafe_b64decode(parts[1] + padding))
    except (binascii.Error, ValueError, RecursionError):
        return None
    if not isinstance(claims, dict):
        return None
    team = claims.get("team")
    if isinstance(team, str) and team:
        return team
    return None


@takes_secrets
def _checked(text: object, name: str) -> str:
    """Return a token without the line break at the end of a mounted file: no token has white space."""
    token = text.strip() if isinstance(text, str) else ""
    if not token:
        raise ConfigurationError(
            f"{name}: needs the token as a string that is not empty"
        )
    if token.lower().startswith("bearer "):
        raise ConfigurationError(
            f"{name}: the token starts with 'Bearer '. Pass it without."
        )
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError(
            f"{name}: the token contains a space, a line break or another invalid character"
        )
    return token


class ApiKey(Credential):
    """An API key of a team, live or test. Only this kind may name another ``team`` (Connect)."""

    kind: CredentialKind = "api_key"
    __slots__ = ()


class OAuthToken(Credential):
    """An OAuth access token, for its own team only."""

    kind: CredentialKind = "oauth_token"
    __slots__ = ()


class PersonToken(Credential):
    """
    A person's token from the identity provider, or a personal MCP token.

    Live or test mode is the person's stored preference. ``users.update_preferences(testmode=…)`` changes it
    for all later calls.
    """

    kind: CredentialKind = "person_token"
    __slots__ = ()


class TokenProvider(Credential):
    """
    A token that an async callable fetches, used until the authentication layer refuses it.

    *source* takes no arguments and returns the token. Only one call of it runs at a time in an event loop,
    however many requests wait, so it needs a time limit of its own. *kind* is the kind of token:
    ``"api_key"``, ``"oauth_token"`` or ``"person_token"``.

    All tokens must be of one team and data mode, because what was begun with one goes on with the next. Two
    providers cannot be told apart: give each team an outbox, a journal and a batch of its own.
    """

    renewable = True
    __slots__ = ("_fetching", "_source", "kind")

    def __init__(
        self, source: Callable[[], Awaitable[str]], *, kind: CredentialKind
    ) -> None:
        if kind not in KINDS:
            raise ConfigurationError(
                f"TokenProvider: kind must be one of {', '.join(KINDS)}, not {kind!r}"
            )
        if not callable(source):
            raise ConfigurationError(
                "TokenProvider: source must be an async callable that returns the token"
            )
        self.kind: CredentialKind = kind
        self._source = source
        self.ready = None
        self._fetching = None

    async def header(self) -> str:
        """Return the value of the Authorization header. Fetch the first token if there is none."""
        if self.ready is None:
            await self._fetch()
        return await super().header()

    async def renew(self, refused: str | None) -> bool:
        """
        Fetch a fresh token, unless there is one since *refused* was sent.

        Return False if the token is still the same.
        """
        if self.ready is None or self.ready == refused:
            await self._fetch()
        return self.ready != refused

    async def _fetch(self) -> None:
        """Wait for the fetch under way in this loop, or start a fetch and wait for it."""
        fetching = self._fetching
        if fetching is None or not _runs_here(fetching):
            fetching = self._fetching = asyncio.create_task(self._ask_source())
            # Marks the exception as retrieved: every waiter may be cancelled, and asyncio would log it.
            fetching.add_done_callback(
                lambda task: task.cancelled() or task.exception()
            )
        before = cancellations()
        try:
            await asyncio.shield(fetching)
        except asyncio.CancelledError:
            # Of this waiter, whose own cancellation comes first; else of the fetch, which the source has
            # cancelled; else it was raised without either, and is passed on.
            raise_if_cancelled(before)
            if fetching.cancelled():
                raise ConfigurationError(
                    "TokenProvider: the source was cancelled"
                ) from None
            raise

    async def _ask_source(self) -> None:
        """Ask the source for a token, which is ``ready`` from then on."""
        try:
            token = _checked(await self._source(), "TokenProvider's source")
        except ConfigurationError:
            raise
        except Exception as error:
            raise ConfigurationError(
                f"TokenProvider: the source failed with {type(error).__name__}"
            ) from error
        self.ready = f"Bearer {token}"

    def fingerprint(self, key: str) -> None:
        """Return ``None``, because its tokens change."""

    @property
    def team(self) -> None:
        """``None``, because there is no token before the first request."""


def _runs_here(task: asyncio.Task[None]) -> bool:
    """Return whether *task* has not ended yet, and is of the running loop."""
    return not task.done() and task.get_loop() is asyncio.get_running_loop()


_VARIABLES: dict[str, type[Credential]] = {
    "INVSVC_API_KEY": ApiKey,
    "INVSVC_OAUTH_TOKEN": OAuthToken,
    "INVSVC_PERSON_TOKEN": PersonToken,
}


@takes_secrets
def credential_from(environment: Mapping[str, str]) -> Credential:
    """Return the credential for the one token that is set in *environment*."""
    given: list[Credential] = []
    for name, kind in _VARIABLES.items():
        text = environment.get(name)
        if text:
            given.append(kind(text))
    if len(given) == 1:
        return given[0]
    found = "no token is set"
    if given:
        found = f"{len(given)} tokens are set"
    raise ConfigurationError(
        f"credential: {found}. "
        "Set exactly one of INVSVC_API_KEY, INVSVC_OAUTH_TOKEN and INVSVC_PERSON_TOKEN."
    )
