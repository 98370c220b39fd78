"""Operations on users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async import models
from invsvc_async.api import operations
from invsvc_async.resources.base import Resource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.models import Preferences, User
    from invsvc_async.settings import AnyReader, CallOptions
    from invsvc_async.writes.write import Write


class Users(Resource):
    """
    Users and their preferences.

    Spec: Endpoints, Users.
    """

    async def get(
        self,
        user_id: str,
        *,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> User:
        """
        Read one user, with the ids of their teams.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            NotFoundError: It does not exist in the selected team and mode.
            ServiceError, TransportError, DeadlineExceededError: As of any read.

        Spec: Endpoints, Users.
        """
        return await self._read(
            models.User,
            operations.USERS_GET,
            {"user_id": user_id},
            team=team,
            options=options,
        )

    def update_preferences(
        self,
        team_id: str,
        *,
        testmode: bool,
        extra_body: Mapping[str, Wire] | None = None,
        reader: AnyReader | None = None,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> Write[Preferences]:
        """
        Set whether the person works on test data in a team. This affects all later calls with their token.

        Needs a person's token. Fields that are not specified go in *extra_body*.

        The specification has no read of preferences. If the answer is lost, *reader* settles the write.
        Without one the verdict is then UNKNOWN at once.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            ConfigurationError: The credential is not a person's token; nothing was sent.
            PermissionDeniedError, NotFoundError: The service refused it.
            WriteNotAppliedError: It provably did not happen.
            AmbiguousWriteError: The answer was lost, and no read shows the outcome.

        Spec: Endpoints, Users; Authentication.
        """
        return self._write(
            operations.USERS_UPDATE_PREFERENCES,
            {"team_id": team_id, "testmode": testmode},
            extra_body=extra_body,
            reader=reader,
            team=team,
            options=options,
        )
