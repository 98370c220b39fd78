"""Offer what can be read of payments; never send a reminder or a charge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async import models
from invsvc_async.api import operations
from invsvc_async.reads import retry
from invsvc_async.resources.base import Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from invsvc_async.models import PaymentLink, ReminderOperation
    from invsvc_async.transport.session import Request

__all__ = ["Payments"]


class Payments(Resource):
    """
    Payment links and payment reminders.

    Spec: Endpoints, Payments.
    """

    async def link(self, link_id: str, *, team: str | None = None) -> PaymentLink:
        """
        Read a reusable payment link; that it was saved neither charged anybody nor stamped an invoice.

        With a person's token the service takes only the team that the person is in, and the mode of their
        stored preference.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            NotFoundError: There is none in the selected team and mode.
            ServiceError, TransportError, DeadlineExceededError: As of any read.

        Spec: Endpoints, Payments.

        """
        request = self._request(operations.PAYMENTS_LINK, {"link_id": link_id}, team=team)
        return await self._read(models.PaymentLink, request)

    async def reminder_operation(
        self,
        payment_id: str,
        operation_id: str,
        *,
        extra_query: Mapping[str, str | int] | None = None,
        team: str | None = None,
    ) -> ReminderOperation:
        """
        Read a reminder operation, which is how its uncertain result is found out: the same UUID again.

        *operation_id* is a version-4 UUID in lower case.  The shape of the answer is not specified:
        ``.content`` holds all of it.  That an email was accepted proves no delivery, and in test mode a
        production deployment can send real email.  A parameter whose name the specification does not show
        goes in *extra_query*.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            NotFoundError: There is none in the selected team and mode.
            ServiceError, TransportError, DeadlineExceededError: As of any read.

        Spec: Endpoints, Payments.

        """
        request = self._reminder(payment_id, operation_id, extra_query, team)
        return await self._read(models.ReminderOperation, request)

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
    ) -> ReminderOperation:
        """
        Read the same reminder operation every *poll* seconds until *until* is true of it, for at most
        *timeout* seconds.

        It never sends: sending again needs a person's review.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            DeadlineExceededError: *until* was not true in time; waiting changed nothing.
            ServiceError: The service said no; failures that pass are read again.

        Spec: Endpoints, Payments.

        """
        times = retry.wait_problems(timeout=timeout, poll=poll)
        request = self._reminder(payment_id, operation_id, extra_query, team, times)
        return await retry.poll(
            self._view,
            lambda deadline: self._read(models.ReminderOperation, request, deadline=deadline),
            until=until,
            timeout=timeout,
            every=poll,
            what="payments.settle_reminder",
        )

    def _reminder(
        self,
        payment_id: str,
        operation_id: str,
        extra_query: Mapping[str, str | int] | None,
        team: str | None,
        others: Sequence[str] = (),
    ) -> Request:
        arguments = {"payment_id": payment_id, "operation_id": operation_id}
        operation = operations.PAYMENTS_REMINDER_OPERATION
        return self._request(operation, arguments, extra_query=extra_query, team=team, others=others)
