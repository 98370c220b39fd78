"""Addresses of databases, as distinguished from paths and shown to people."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

from invsvc_async.errors import ConfigurationError

_ADDRESS: Final = r"(?i)\s*(postgres\w*:|[a-z][a-z0-9+.-]*://)"
# A setting of the other form of addresses, "host=db password=…".
_SETTING: Final = r"(?i)(^|\s)(host|hostaddr|port|dbname|user|password|passfile|service|options|ssl\w+)\s*="


def is_postgres(address: str) -> bool:
    """Return whether *address* is that of a PostgreSQL database."""
    return address.startswith(("postgresql://", "postgres://"))


def check_path(path: str, what: str) -> None:
    """
    Refuse the address of a database where a path is expected: errors and logs show paths, with passwords.

    Raises:
        ConfigurationError: *path* is an address.
    """
    if re.match(_ADDRESS, path) or re.search(_SETTING, path):
        raise ConfigurationError(
            f"{what}: an address of this form is not supported. Use postgresql://… or the path of a file."
        )


def split(address: str, what: str) -> SplitResult:
    """
    Split the address of a database, which errors call *what*.

    Raises:
        ConfigurationError: It is malformed. What exactly is wrong could be a part of the password.
    """
    try:
        return urlsplit(address)
    except ValueError:
        raise ConfigurationError(
            f"{what}: is malformed. In a user name or password, write special characters as in URLs: "
            "[ as %5B, ] as %5D, @ as %40."
        ) from None


def user_in(address: str) -> str:
    """Return the user in the login of *address*, as it is written there, without the password; "" if none."""
    login, found, _ = urlsplit(address).netloc.rpartition("@")
    if found:
        return login.partition(":")[0]
    return ""


def without_login(address: str) -> str | None:
    """Return the host and database in *address*; ``None`` if a password could be mistaken for them."""
    try:
        parts = urlsplit(address)
        _ = parts.port  # raises if it is not a number
    except ValueError:
        return None
    # the login contains / ? or #, not encoded
    if "@" in parts.path + parts.query + parts.fragment:
        return None
    return parts.netloc.rpartition("@")[2] + parts.path
