"""
Hold the caller's token and present it; never show it in a repr, a log, an error or a pickle.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, ClassVar, Literal, NoReturn

from invsvc_async._errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["ApiKey", "Credential", "OAuthToken", "PersonToken", "TokenProvider"]

CredentialKind = Literal["api_key", "oauth_token", "person_token"]
KINDS: tuple[CredentialKind, ...] = ("api_key", "oauth_token", "person_token")


class Credential:
    """What proves to the service who calls.  Spec: Authentication."""

    kind: CredentialKind
    renewable: ClassVar[bool] = False
    ready: str | None  # the value of the Authorization header, where no call is needed to have it
    __slots__ = ("ready",)

    def __init__(self, text: str) -> None:
        self.ready = f"Bearer {_checked(text, type(self).__name__)}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}(***)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a credential does not pickle: make it anew where it is needed")

    async def header(self) -> str:
        """Have the value of the Authorization header."""
        assert self.ready is not None
        return self.ready

    async def renew(self, refused: str | None) -> bool:  # noqa: ARG002 - a fixed token cannot be renewed
        """Get a fresh token in place of the *refused* header; False where there is none to be had."""
        return False

    def fingerprint(self, key: str) -> str | None:
        """Tell this credential from others, under *key*, and reveal nothing of it."""
        if self.ready is None:
            return None
        token = self.ready.removeprefix("Bearer ").encode()
        return hashlib.blake2b(token, key=key.encode()[:64], digest_size=12).hexdigest()


def _checked(text: object, name: str) -> str:
    if not isinstance(text, str) or not text.strip():
        raise ConfigurationError(f"{name} needs the token's text; it got none")
    if text.lower().startswith("bearer "):
        raise ConfigurationError(f"{name} takes the bare token, without 'Bearer ' in front")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigurationError(
            f"{name} holds a space, a line break or a character that no token has: check how it was read"
        )
    return text


class ApiKey(Credential):
    """A team's API key, live or test; the only kind that may name another ``team`` (Connect)."""

    kind: CredentialKind = "api_key"
    __slots__ = ()


class OAuthToken(Credential):
    """An OAuth access token, bound to its own team."""

    kind: CredentialKind = "oauth_token"
    __slots__ = ()


class PersonToken(Credential):
    """
    An identity-provider token of a person, or a personal MCP token.

    Live or test is the person's stored preference: ``users.update_preferences(testmode=…)`` flips what later
    calls see.
    """

    kind: CredentialKind = "person_token"
    __slots__ = ()


class TokenProvider(Credential):
    """
    A token that an async callable fetches, kept until the authentication layer refuses it.

    *source* takes nothing and returns the bare token.  At most one call of it runs at a time, however many
    requests wait. *kind* tells what it fetches: ``"api_key"``, ``"oauth_token"`` or ``"person_token"``.
    """

    renewable = True
    __slots__ = ("_fetching", "_source", "kind")

    def __init__(self, source: Callable[[], Awaitable[str]], *, kind: CredentialKind) -> None:
        if kind not in KINDS:
            raise ConfigurationError(f"TokenProvider kind {kind!r} is none of {', '.join(KINDS)}")
        if not callable(source):
            raise ConfigurationError("TokenProvider needs an async callable that returns the bare token")
        self.kind: CredentialKind = kind
        self._source = source
        self.ready = None
        self._fetching: asyncio.Task[None] | None = None  # no result: asyncio's debug mode shows results

    async def header(self) -> str:
        """Have the value of the Authorization header, fetching the first token."""
        if self.ready is None:
            await self._fetch()
        return await super().header()

    async def renew(self, refused: str | None) -> bool:
        """
        Fetch a fresh token, unless somebody has since *refused* was sent; False if it is the same one again.
        """
        if self.ready is None or self.ready == refused:
            await self._fetch()
        return self.ready != refused

    async def _fetch(self) -> None:
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._fetched())
            self._fetching.add_done_callback(_look_at)
        fetching = self._fetching
        try:
            await asyncio.shield(fetching)
        except asyncio.CancelledError:
            if fetching.cancelled():  # by whoever ended the loop: ours was not
                raise ConfigurationError("TokenProvider: the source was cancelled") from None
            raise

    async def _fetched(self) -> None:
        try:
            token = _checked(await self._source(), "TokenProvider's source")
        except ConfigurationError:
            raise
        except Exception as error:
            raise ConfigurationError(
                f"TokenProvider: the source failed with {type(error).__name__}"
            ) from error
        finally:
            self._fetching = None
        self.ready = f"Bearer {token}"

    def fingerprint(self, key: str) -> None:
        """Have none: its tokens change."""


def _look_at(fetching: asyncio.Task[None]) -> None:
    """Take a failure as seen, for all who waited for it may have been cancelled."""
    if not fetching.cancelled():
        fetching.exception()


def credential_from(*, api_key: str | None, oauth_token: str | None, person_token: str | None) -> Credential:
    """Take the one that is set, in words where none or several are."""
    given = [
        kind(text)
        for kind, text in ((ApiKey, api_key), (OAuthToken, oauth_token), (PersonToken, person_token))
        if text
    ]
    if len(given) != 1:
        raise ConfigurationError(
            "set exactly one of INVSVC_API_KEY, INVSVC_OAUTH_TOKEN and INVSVC_PERSON_TOKEN; "
            f"{f'{len(given)} of them are set' if given else 'none is set'}"
        )
    return given[0]
