"""Operations on imports from a spreadsheet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.api import operations
from invsvc_async.resources.base import Resource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.models import SheetConnection
    from invsvc_async.settings import AnyReader, CallOptions
    from invsvc_async.writes.write import Write


class Sheets(Resource):
    """
    Imports from a spreadsheet.

    Spec: Endpoints, Spreadsheet import.
    """

    def save_mapping(
        self,
        fields: Mapping[str, Wire],
        *,
        extra_body: Mapping[str, Wire] | None = None,
        reader: AnyReader | None = None,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> Write[SheetConnection]:
        """
        Save the columns of fields. This pauses the connection and rotates its generation.

        The keys of *fields* are not specified, so the service checks them. Other properties go in
        *extra_body*. Needs editor authority, in the team and on the target module.

        The specification has no read of the connection. If the answer is lost, *reader* settles the write.
        Without one the verdict is then UNKNOWN at once.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            ValidationFailedError, PermissionDeniedError, ConflictError: The service refused it.
            WriteNotAppliedError: It provably did not happen.
            AmbiguousWriteError: The answer was lost, and no read shows the outcome.

        Spec: Endpoints, Spreadsheet import.
        """
        return self._write(
            operations.SHEETS_SAVE_MAPPING,
            {"fields": fields},
            extra_body=extra_body,
            reader=reader,
            team=team,
            options=options,
        )
