"""Reads of payment links and payment reminders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async import models
from invsvc_async.api import operations
from invsvc_async.resources.base import Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from invsvc_async.models import PaymentLink, ReminderOperation
    from invsvc_async.settings import CallOptions


class Payments(Resource):
    """
    Payment links and payment reminders.

    Spec: Endpoints, Payments.
    """

    async def link(
        self,
        link_id: str,
        *,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> PaymentLink:
        """
        Read a reusable payment link. Saving a link neither charges anybody nor stamps an invoice.

        With a person's token, the service accepts only the person's own team and stored mode.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            NotFoundError: It does not exist in the selected team and mode.
            ServiceError, TransportError, DeadlineExceededError: As of any read.

        Spec: Endpoints, Payments.
        """
        return await self._read(
            models.PaymentLink,
            operations.PAYMENTS_LINK,
            {"link_id": link_id},
            team=team,
            options=options,
        )

    async def reminder_operation(
        self,
        payment_id: str,
        operation_id: str,
        *,
        extra_query: Mapping[str, str | int] | None = None,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> ReminderOperation:
        """
        Read a reminder operation by its UUID. This settles a reminder whose result is uncertain.

        *operation_id* is a version-4 UUID in lower case. The form of the answer is not specified, so
        ``.content`` has all of it. An accepted email is not a proof of delivery. A production deployment can
        send real email in test mode. Parameters whose names are not specified go in *extra_query*.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            NotFoundError: It does not exist in the selected team and mode.
            ServiceError, TransportError, DeadlineExceededError: As of any read.

        Spec: Endpoints, Payments.
        """
        return await self._read(
            models.ReminderOperation,
            operations.PAYMENTS_REMINDER_OPERATION,
            {"payment_id": payment_id, "operation_id": operation_id},
            extra_query=extra_query,
            team=team,
            options=options,
        )

    async def settle_reminder(
        self,
        payment_id: str,
        operation_id: str,
        *,
        until: Callable[[ReminderOperation], bool],
        timeout: float = 60.0,
        poll: float = 2.0,
        extra_query: Mapping[str, str | int] | None = None,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> ReminderOperation:
        """
        Read a reminder operation every *poll* seconds until ``until(operation)`` is true.

        Does not send the reminder again, because that needs a person's review.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            DeadlineExceededError: *until* was not true within *timeout* seconds. Waiting changed nothing.
            ServiceError: The service refused the read. Transient failures are retried.

        Spec: Endpoints, Payments.
        """
        return await self._wait_for(
            models.ReminderOperation,
            operations.PAYMENTS_REMINDER_OPERATION,
            {"payment_id": payment_id, "operation_id": operation_id},
            what="payments.settle_reminder",
            until=until,
            timeout=timeout,
            poll=poll,
            extra_query=extra_query,
            team=team,
            options=options,
        )
