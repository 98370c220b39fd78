"""Operations on journeys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async import models
from invsvc_async.api import operations
from invsvc_async.models.common import UNSET
from invsvc_async.resources.base import Resource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.models import Journey, JourneyGraph, Unset
    from invsvc_async.settings import CallOptions
    from invsvc_async.writes.write import Write


class Journeys(Resource):
    """
    Workflow graphs.

    Spec: Endpoints, Journeys.
    """

    def update(
        self,
        journey: Journey | str,
        *,
        name: str | Unset = UNSET,
        description: str | Unset | None = UNSET,
        graph: JourneyGraph | Mapping[str, Wire] | Unset | None = UNSET,
        trigger_type: str | Unset | None = UNSET,
        replaces_defaults: bool | Unset | None = UNSET,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> Write[Journey]:
        """
        Change fields of a journey's draft. The published snapshot stays as it is.

        *journey* is an id, or a ``Journey`` whose state serves as the baseline. *name* has 1 to 150
        characters, *description* at most 1000. *graph* has ``nodes`` and ``edges``, and only keys that the
        specification names. Needs admin authority.

        Updates of one journey are sent one at a time. If the answer is lost, the journey is read. Its fields
        and its ``last_updated`` are compared with those sent, and with the last state that this client saw.
        That read is not in the specification's list: ``ReconcilePolicy(journey_reader=…)`` replaces it or
        turns it off. For a journey that is not a draft, the verdict is UNKNOWN, unless
        ``journey_reads_show_drafts`` asserts that reads show drafts of published journeys too.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            ValidationFailedError, PermissionDeniedError, NotFoundError, ConflictError: The service refused
                it. Conflicts are of state, of a stale group revision, or of a spreadsheet's owner.
            WriteNotAppliedError: It provably did not happen.
            WriteSupersededError: Another program has changed the journey since.
            AmbiguousWriteError: No read shows the outcome.

        Spec: Endpoints, Journeys.
        """
        return self._write(
            operations.JOURNEYS_UPDATE,
            {
                "journey": journey,
                "name": name,
                "description": description,
                "graph": graph,
                "trigger_type": trigger_type,
                "replaces_defaults": replaces_defaults,
            },
            baseline=journey,
            team=team,
            options=options,
        )

    async def get(
        self,
        journey_id: str,
        *,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> Journey:
        """
        Read a journey. The specification does not list this operation, so a deployment may lack it.

        For a journey that is not a draft, it may show the published snapshot.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            NotFoundError: It does not exist in the selected team and mode, or the deployment lacks this read.
            ServiceError, TransportError, DeadlineExceededError: As of any read.

        Spec: none; see Endpoints, Journeys, for the object.
        """
        return await self._read_state(
            models.Journey,
            operations.JOURNEYS_GET,
            {"journey_id": journey_id},
            team=team,
            options=options,
        )
