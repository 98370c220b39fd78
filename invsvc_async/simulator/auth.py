"""
Authentication and authorization: credentials, Connect, and roles.

The request's body is not used: none of its fields can change the team or the data mode.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from invsvc_async.simulator.json_records import Json, json_text

if TYPE_CHECKING:
    from invsvc_async.simulator.state import ServiceState

Kind = Literal["key", "oauth", "person"]
Role = Literal["viewer", "editor", "admin"]
RANK: dict[Role, int] = {"viewer": 0, "editor": 1, "admin": 2}
MODULES = frozenset({"payments"})
UNAUTHORIZED = "Unauthorized"
EXPIRED = "Access token has expired. Please refresh your token."
REVOKED = "Access token has been revoked"
# What a credential gets that is not active any more: status, message, and more members of the body.
ENDED: dict[tuple[str, str], tuple[int, str, dict[str, str]]] = {
    ("key", "revoked"): (403, "La llave fue revocada", {"details": "Invalid API Key"}),
    ("key", "expired"): (401, UNAUTHORIZED, {}),
    ("oauth", "revoked"): (401, REVOKED, {"error": "token_revoked"}),
    ("oauth", "expired"): (401, EXPIRED, {"error": "token_expired"}),
    ("person", "revoked"): (401, REVOKED, {}),
    ("person", "expired"): (401, EXPIRED, {}),
}


@dataclass(slots=True)
class IssuedToken:
    """A token that the service has issued."""

    kind: Kind
    team: str | None
    livemode: bool
    user: str
    role: Role = "admin"
    modules: frozenset[str] = MODULES
    standing: Literal["active", "revoked", "expired"] = "active"


class Refusal(Exception):  # noqa: N818 - an answer of the service, not a failure of this program
    """A definite "no" of the service, with one of its two error bodies."""

    def __init__(self, status: int, body: dict[str, Json]) -> None:
        super().__init__(status, body)
        self.status = status
        self.body = body


@dataclass(frozen=True, slots=True)
class Caller:
    """The credential of a request, with the team and data mode in which it acts."""

    credential: IssuedToken
    team: str
    livemode: bool


@dataclass(slots=True)
class Keyring:
    """Every credential by its token's text."""

    state: ServiceState
    issued: dict[str, IssuedToken] = field(default_factory=dict[str, IssuedToken])

    def issue(self, credential: IssuedToken) -> str:
        """Make a token for *credential*: a JWT for keys and persons, opaque text for OAuth."""
        number = f"{self.state.random.getrandbits(128):032x}"
        token = f"oat_{number}"
        if credential.kind != "oauth":
            claims: dict[str, Json] = {}
            if credential.team is not None:
                claims["team"] = credential.team
            claims |= {
                "sub": credential.user,
                "livemode": credential.livemode,
                "jti": number,
            }
            texts = (
                json_text({"alg": "HS256", "typ": "JWT"}),
                json_text(claims),
                number,
            )
            parts = (
                base64.urlsafe_b64encode(each.encode()).rstrip(b"=") for each in texts
            )
            token = b".".join(parts).decode()
        self.issued[token] = credential
        return token

    def caller(self, header: str | None, team: str | None) -> Caller:
        """
        Return the caller, according to the Authorization header and the ``team`` parameter.

        Raises:
            Refusal: 401 or 403 with the raw body of the authentication layer.
        """
        credential = self._credential(header)
        if credential.standing != "active":
            status, message, more = ENDED[credential.kind, credential.standing]
            raise _denied(status, message, **more)
        selected = self._selected_team(credential, team)
        if not self.state.accounts[selected].api_access:
            raise _denied(403, "The plan does not include API access")
        livemode = credential.livemode
        if credential.kind == "person":
            livemode = not self.state.preference(credential.user, selected)["testmode"]
        return Caller(credential, selected, livemode)

    def _credential(self, header: str | None) -> IssuedToken:
        prefix, _, token = (header or "").partition(" ")
        if prefix != "Bearer":
            raise _denied(401, UNAUTHORIZED)
        known = self.issued.get(token)
        if known is not None:
            return known
        if token.startswith("oat_"):
            raise _denied(401, "Invalid access token", error="invalid_token")
        raise _denied(401, UNAUTHORIZED)

    def _selected_team(self, credential: IssuedToken, team: str | None) -> str:
        own = credential.team
        if own is None:
            raise _denied(401, "Unauthorized, missing team in token")
        if team is None or team == own:
            return own
        if credential.kind != "key":
            if credential.kind == "oauth":
                with_what = "OAuth token"
            else:
                with_what = "the current authenticated team"
            raise _denied(403, f"Team mismatch with {with_what}")
        master = self.state.accounts[own]
        target = self.state.accounts.get(team)
        if not master.connect:
            raise _denied(401, "Unauthorized, not a master team")
        if target is None or target.billing != master.billing:
            raise _denied(401, "Unauthorized, no matched teams")
        if "multipleIssuerAccounts" not in master.features:
            raise _denied(403, "El plan no incluye multipleIssuerAccounts")
        return team


def _denied(status: int, message: str, **more: str) -> Refusal:
    if "error" in more:
        more["error_description"] = message
    return Refusal(status, {"message": message, **more})
