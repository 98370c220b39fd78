"""Operations on invoices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from invsvc_async import models
from invsvc_async.api import operations
from invsvc_async.models.common import UNSET
from invsvc_async.resources.base import Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import date, datetime

    from invsvc_async.models import DownloadRequest, Invoice, Unset
    from invsvc_async.reads.pages import Pages
    from invsvc_async.settings import CallOptions


class Invoices(Resource):
    """
    Fiscal invoices, and their bulk downloads from the tax authority.

    The country (Mexico or Colombia) is that of the issuing team, whatever the customer or the currency.

    Spec: Endpoints, Invoices.
    """

    def egress(
        self,
        *,
        limit: int | Unset = UNSET,
        cursor: str | Unset = UNSET,
        order_by: Literal["name", "timestamp"] | Unset = UNSET,
        order: Literal["asc", "desc"] | Unset = UNSET,
        created_after: datetime | date | int | Unset = UNSET,
        created_before: datetime | date | int | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
        client_id: str | Unset = UNSET,
        client_tax_id: str | Unset = UNSET,
        status: Literal["valid", "canceled", "cancelled"] | Unset = UNSET,
        series: str | Unset = UNSET,
        folio: str | int | Unset = UNSET,
        metadata: Mapping[str, str] | Unset = UNSET,
        page: int | Unset = UNSET,
        prefetch: bool = False,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> Pages[Invoice]:
        """
        List egress invoices (type E). Pages are read while the list is iterated over.

        *limit* is the page size, 1 to 100 (the service's default: 10). *created_after* and
        *created_before* are inclusive: an aware ``datetime``, a ``date`` (its midnight in UTC) or epoch ms.
        *series*, *folio* and *idempotency_key* match exactly. *page* (from 1) can only be used with
        *metadata*. *prefetch* reads one page ahead. Several wire names are assumptions: see
        ``ParameterNames``.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            FilterNotHonouredError: While iterating: an item does not match a filter.
            ServiceError, TransportError, DeadlineExceededError: While iterating, as of any read.

        Spec: Endpoints, Invoices.
        """
        return self._pages(
            models.Invoice,
            operations.INVOICES_EGRESS,
            {
                "limit": limit,
                "cursor": cursor,
                "order_by": order_by,
                "order": order,
                "created_after": created_after,
                "created_before": created_before,
                "idempotency_key": idempotency_key,
                "client_id": client_id,
                "client_tax_id": client_tax_id,
                "status": status,
                "series": series,
                "folio": folio,
                "metadata": metadata,
                "page": page,
            },
            prefetch=prefetch,
            team=team,
            options=options,
        )

    def payment_complements(
        self,
        *,
        limit: int | Unset = UNSET,
        cursor: str | Unset = UNSET,
        order_by: Literal["name", "timestamp"] | Unset = UNSET,
        order: Literal["asc", "desc"] | Unset = UNSET,
        created_after: datetime | date | int | Unset = UNSET,
        created_before: datetime | date | int | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
        prefetch: bool = False,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> Pages[Invoice]:
        """
        List payment complements (type P), which register payments of PPD invoices. Their totals are zero.

        The arguments are as in :meth:`egress`.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            FilterNotHonouredError: While iterating: an item does not match a filter.
            ServiceError, TransportError, DeadlineExceededError: While iterating, as of any read.

        Spec: Endpoints, Invoices.
        """
        return self._pages(
            models.Invoice,
            operations.INVOICES_PAYMENT_COMPLEMENTS,
            {
                "limit": limit,
                "cursor": cursor,
                "order_by": order_by,
                "order": order,
                "created_after": created_after,
                "created_before": created_before,
                "idempotency_key": idempotency_key,
            },
            prefetch=prefetch,
            team=team,
            options=options,
        )

    async def download_status(
        self,
        request_id: str,
        *,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> DownloadRequest:
        """
        Read the status of a download from the tax authority. The specification names only ``completed``.

        *request_id* comes from ``POST /invoices/download/request`` (``client.write``). Each of ``packages``
        can then be downloaded with ``client.download(f"/invoices/download/package/{package.id}")``.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            NotFoundError: It does not exist in the selected team and mode.
            ServiceError, TransportError, DeadlineExceededError: As of any read.

        Spec: Endpoints, Invoices.
        """
        return await self._read(
            models.DownloadRequest,
            operations.INVOICES_DOWNLOAD_STATUS,
            {"request_id": request_id},
            team=team,
            options=options,
        )

    async def wait_for_download(
        self,
        request_id: str,
        *,
        timeout: float = 600.0,
        poll: float = 5.0,
        until: Callable[[DownloadRequest], bool] | None = None,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> DownloadRequest:
        """
        Read the status every *poll* seconds until it is ``completed``, for at most *timeout* seconds.

        The specification names no status of failure. Pass *until* to stop on those of your deployment.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            DeadlineExceededError: It was not completed in time. Waiting changed nothing.
            ServiceError: The service refused the read. Transient failures are retried.

        Spec: States and transitions.
        """
        until = until or (lambda found: found.status == "completed")
        return await self._wait_for(
            models.DownloadRequest,
            operations.INVOICES_DOWNLOAD_STATUS,
            {"request_id": request_id},
            what="invoices.wait_for_download",
            timeout=timeout,
            poll=poll,
            until=until,
            team=team,
            options=options,
        )
