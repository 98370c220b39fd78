"""Operations on teams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from invsvc_async import models
from invsvc_async.api import operations
from invsvc_async.models.common import UNSET
from invsvc_async.resources.base import Resource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from decimal import Decimal

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.models import (
        Address,
        Brand,
        DbtableTables,
        DbtableWebhooks,
        Member,
        Team,
        Unset,
    )
    from invsvc_async.settings import AnyReader, CallOptions
    from invsvc_async.writes.write import Write


class Teams(Resource):
    """
    Teams, and their imports from the table-database provider.

    Spec: Endpoints, Teams.
    """

    def create(
        self,
        *,
        legal_name: str | Unset = UNSET,
        tax_id: str | Unset = UNSET,
        tax_system: str | Unset = UNSET,
        address: Address | Mapping[str, Wire] | Unset = UNSET,
        brand: Brand | Mapping[str, Wire] | Unset = UNSET,
        support_email: str | Unset = UNSET,
        support_phone: str | Unset = UNSET,
        generate_onboarding_url: bool | Unset = UNSET,
        metadata: Mapping[str, Wire] | Unset = UNSET,
        add_members: Sequence[Member | Mapping[str, Wire]] | Unset = UNSET,
        add_master_team_members: bool | Unset = UNSET,
        credit_limit: int | Decimal | Unset | None = UNSET,
        extra_body: Mapping[str, Wire] | None = None,
        reader: AnyReader | None = None,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> Write[Team]:
        """
        Create a team. The required fields are not specified, so the service checks them.

        *add_members* is a list of ``{"id", "role"}`` (known roles: admin, editor, viewer). *credit_limit* is
        in documents per billing period; null, or leaving it out, means no limit of its own.
        *generate_onboarding_url* adds ``onboarding_url`` to the answer. The plan needs
        ``multipleIssuerAccounts`` (otherwise 403) and the suppliers feature (otherwise 401).

        The specification has no read that finds a team. If the answer is lost, *reader* settles the write.
        Without one the verdict is then UNKNOWN at once.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            ValidationFailedError, AuthenticationError, PermissionDeniedError: The service refused it.
            WriteNotAppliedError: It provably did not happen.
            AmbiguousWriteError: The answer was lost, and no read shows the outcome.

        Spec: Endpoints, Teams.
        """
        return self._write(
            operations.TEAMS_CREATE,
            {
                "legal_name": legal_name,
                "tax_id": tax_id,
                "tax_system": tax_system,
                "address": address,
                "brand": brand,
                "support_email": support_email,
                "support_phone": support_phone,
                "generate_onboarding_url": generate_onboarding_url,
                "metadata": metadata,
                "add_members": add_members,
                "add_master_team_members": add_master_team_members,
                "credit_limit": credit_limit,
            },
            extra_body=extra_body,
            reader=reader,
            team=team,
            options=options,
        )

    async def dbtable_webhooks(
        self,
        team_id: str,
        *,
        scope: Literal["mode", "shared"] | Unset = UNSET,
        state: Literal["active", "expired", "disabled"] | Unset = UNSET,
        limit: int | Unset = UNSET,
        extra_query: Mapping[str, str | int] | None = None,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> DbtableWebhooks:
        """
        Read the import mappings of the table-database provider.

        Check ``.status``, because the list may still be ``processing``. *limit* is the page size, 1 to 100.
        The wire names of *state* and *limit* are assumptions (``ParameterNames``). Parameters whose names
        are not specified go in *extra_query*. Live and test mode share one connection to the provider.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            ConfigurationError: The credential is not a person's token.
            ServiceError, TransportError, DeadlineExceededError: As of any read.

        Spec: Endpoints, Teams.
        """
        return await self._read(
            models.DbtableWebhooks,
            operations.TEAMS_DBTABLE_WEBHOOKS,
            {"team_id": team_id, "scope": scope, "state": state, "limit": limit},
            extra_query=extra_query,
            team=team,
            options=options,
        )

    async def dbtable_tables(
        self,
        team_id: str,
        base_id: str,
        *,
        extra_query: Mapping[str, str | int] | None = None,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> DbtableTables:
        """
        Read the tables and fields of a base. Check ``.status``: the list may still be ``processing``.

        Parameters whose names are not specified go in *extra_query*.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            ConfigurationError: The credential is not a person's token.
            ServiceError, TransportError, DeadlineExceededError: As of any read.

        Spec: Endpoints, Teams.
        """
        return await self._read(
            models.DbtableTables,
            operations.TEAMS_DBTABLE_TABLES,
            {"team_id": team_id, "base_id": base_id},
            extra_query=extra_query,
            team=team,
            options=options,
        )
