"""Files of tax retentions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from invsvc_async import codec, models
from invsvc_async.api import operations
from invsvc_async.models.common import UNSET
from invsvc_async.reads import retry
from invsvc_async.resources.base import Resource

if TYPE_CHECKING:
    from invsvc_async.models import RetentionFile
    from invsvc_async.settings import CallOptions


class Retentions(Resource):
    """
    Tax retentions.

    Spec: Endpoints, Retentions.
    """

    async def files(
        self,
        retention_id: str,
        *,
        file_type: Literal["pdf", "xml"] | None = None,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> list[RetentionFile]:
        """
        Read the files of a stamped retention: both, or those of *file_type*.

        *retention_id* is its UUID. ``.encoded`` is a file as received, ``.content`` its bytes.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            NotFoundError: It does not exist in the selected team and mode.
            ServiceError, TransportError, DeadlineExceededError: As of any read.

        Spec: Endpoints, Retentions.
        """
        values = {
            "retention_id": retention_id,
            "file_type": UNSET if file_type is None else file_type,
        }
        view, request = self._request(
            operations.RETENTIONS_FILES, values, team=team, options=options
        )
        envelope = await retry.read(view, request)
        meta = codec.meta_of(envelope)
        return [
            codec.with_meta(item, meta)
            for item in codec.many(models.RetentionFile, envelope)
        ]
