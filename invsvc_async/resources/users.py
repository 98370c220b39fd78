"""Offer the operations of users; never keep a preference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async import models
from invsvc_async.api import operations
from invsvc_async.resources.base import Resource

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from invsvc_async.models import Preferences, User
    from invsvc_async.settings import AnyReader
    from invsvc_async.writes.write import Write

__all__ = ["Users"]


class Users(Resource):
    """
    Users and their preferences.

    Spec: Endpoints, Users.
    """

    async def get(self, user_id: str, *, team: str | None = None) -> User:
        """
        Read one user, with the ids of the teams that they belong to.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            NotFoundError: There is none in the selected team and mode.
            ServiceError, TransportError, DeadlineExceededError: As of any read.

        Spec: Endpoints, Users.

        """
        request = self._request(operations.USERS_GET, {"user_id": user_id}, team=team)
        return await self._read(models.User, request)

    def update_preferences(
        self,
        team_id: str,
        *,
        testmode: bool,
        extra_body: Mapping[str, Any] | None = None,  # Any: JSON
        reader: AnyReader | None = None,
        team: str | None = None,
    ) -> Write[Preferences]:
        """
        Set whether the caller works on test data in a team: it flips the mode of every later call with a
        person's token.

        Takes a person's token only.  Fields that the specification does not show go in *extra_body*.

        The specification has no read of preferences: when the answer is lost, *reader* finds out, and
        without one the verdict is UNKNOWN at once.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            ConfigurationError: The credential is not a person's token; nothing was sent.
            PermissionDeniedError, NotFoundError: The service said no.
            WriteNotAppliedError: It provably did not happen.
            AmbiguousWriteError: The answer was lost, and nothing that was read tells.

        Spec: Endpoints, Users; Authentication.

        """
        arguments = {"team_id": team_id, "testmode": testmode}
        operation = operations.USERS_UPDATE_PREFERENCES
        request = self._request(operation, arguments, extra_body=extra_body, team=team)
        return self._write(request, reader=reader)
