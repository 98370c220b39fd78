"""The client of a connection of Airflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.client import Client
from invsvc_async.transport.credentials import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable


@attrs.frozen
class _OfConnection:
    """Makes the client of a connection. Two of equal connections are equal, and share a client."""

    host: str
    password: str = attrs.field(repr=False)
    settings: tuple[tuple[str, Any], ...] = attrs.field(repr=False)

    def __call__(self) -> Client:
        return Client(self.host, ApiKey(self.password), **dict(self.settings))


def client_of_connection(connection: Any) -> Callable[[], Client]:
    """Return what makes the client of a *connection* of Airflow. Any: of the engine."""
    extra: dict[str, Any] = connection.extra_dejson
    settings = tuple(
        (name, extra[name]) for name in ("journal", "team") if name in extra
    )
    return _OfConnection(connection.host, connection.password, settings)
