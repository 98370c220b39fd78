"""Operations on webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from invsvc_async import codec, models
from invsvc_async.api import operations
from invsvc_async.codec.envelope import is_cut
from invsvc_async.models.common import UNSET, Unset
from invsvc_async.reads import retry
from invsvc_async.resources.base import Resource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set as AbstractSet

    from invsvc_async.api.event_types import EventName
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.models import Deleted, Health, Webhook, WebhookList
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.resources.lost_secrets import HasOutcome
    from invsvc_async.settings import CallOptions
    from invsvc_async.writes.write import Write


_DEFAULT_LIMIT = 10  # the service's


class Webhooks(Resource):
    """
    The URLs that events are delivered to.

    Spec: Endpoints, Webhooks.
    """

    async def list(
        self,
        *,
        limit: int | Unset = UNSET,
        status: Literal["active", "inactive"] | Unset = UNSET,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> WebhookList:
        """
        Read up to *limit* webhooks, 1 to 100 (the service's default: 10). There is no cursor to the rest.

        ``.is_full`` is true if the list has *limit* items, or says that it goes on: others may be missing.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            ServiceError, TransportError, DeadlineExceededError: As of any read.

        Spec: Endpoints, Webhooks.
        """
        view, request = self._request(
            operations.WEBHOOKS_LIST,
            {"limit": limit, "status": status},
            team=team,
            options=options,
        )
        envelope = await retry.read(view, request)
        items = codec.many(models.Webhook, envelope)
        asked = _DEFAULT_LIMIT if isinstance(limit, Unset) else limit
        is_full = len(items) >= asked or is_cut(envelope, len(items))
        # a part of the list does not show what exists
        if isinstance(status, Unset) and not is_full:
            shown = [
                {"id": getattr(each, "id", None), "url": getattr(each, "url", None)}
                for each in items
            ]
            view.core.writes.learn_list(request.operation.name, request.team, shown)
        return models.WebhookList(
            items=items,
            is_full=is_full,
            meta=codec.meta_of(envelope),
        )

    async def get(
        self,
        webhook_id: str,
        *,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> Webhook:
        """
        Read a webhook. ``secret`` is ``None``, because the service shows it only once.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            NotFoundError: It does not exist in the selected team and mode.
            ServiceError, TransportError, DeadlineExceededError: As of any read.

        Spec: Endpoints, Webhooks.
        """
        return await self._read_state(
            models.Webhook,
            operations.WEBHOOKS_GET,
            {"webhook_id": webhook_id},
            team=team,
            options=options,
        )

    def create(
        self,
        *,
        url: str,
        events: Sequence[EventName] | AbstractSet[EventName],
        description: str | Unset = UNSET,
        status: Literal["active", "inactive"] | Unset = UNSET,
        tag: bool | str | None = None,
        on_lost_secret: Literal["raise", "keep"] = "raise",
        extra_body: Mapping[str, Wire] | None = None,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> Write[Webhook]:
        """
        Subscribe a URL to events. Store the ``secret`` that signs deliveries: no later answer has it.

        *url* is absolute; *events* are names in the specification. No events, or a scheme other than http and
        https, cause a ``UserWarning``. The webhook delivers payload version v1, unless the team's default is
        v2.

        If the answer is lost, the webhook is looked for in the team's list: by its tag, or by the same
        content and a time of creation that fits. Its secret is lost then. *on_lost_secret* decides whether
        that raises, or returns the webhook with ``secret=None``.

        ``tag=True`` puts a short token at the end of *description*, so that the webhook can be identified.
        Without *tag*, a create under a key (``.keyed(…)``), in a batch or in an outbox gets one, and each of
        a client with ``ReconcilePolicy(tag_creates=True)``. ``tag=False`` leaves the description as it is.

        Without a tag, only their times distinguish equal webhooks. Creates of one URL then wait for each
        other. If another program creates an equal webhook at the same time, a lost answer may end as UNKNOWN,
        or with that webhook. A user-supplied text as *tag* helps only if no other webhook of this URL has it.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            ValidationFailedError, PermissionDeniedError: The service refused it.
            SecretLostError: It was created, but its secret is lost.
            WriteNotAppliedError: It provably did not happen.
            AmbiguousWriteError: No read shows the outcome: several webhooks match, or the list is full.

        Spec: Endpoints, Webhooks.
        """
        problems: list[str] = []
        if not _is_tag(tag):
            problems.append("tag: must be true, false, null or a printable string")
        # not a set: values of JSON may be unhashable
        if on_lost_secret not in ("raise", "keep"):
            problems.append("on_lost_secret: must be 'raise' or 'keep'")
        return self._write(
            operations.WEBHOOKS_CREATE,
            {
                "url": url,
                "events": events,
                "description": description,
                "status": status,
            },
            problems=problems,
            tag=tag,
            on_lost_secret=on_lost_secret,
            extra_body=extra_body,
            team=team,
            options=options,
        )

    def update(
        self,
        webhook: Webhook | str,
        *,
        url: str | Unset = UNSET,
        events: Sequence[EventName] | AbstractSet[EventName] | Unset = UNSET,
        description: str | Unset = UNSET,
        status: Literal["active", "inactive"] | Unset = UNSET,
        extra_body: Mapping[str, Wire] | None = None,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> Write[Webhook]:
        """
        Change fields of a webhook. ``status="inactive"`` stops its deliveries, ``"active"`` resumes them.

        *webhook* is an id, or a ``Webhook`` whose state serves as the baseline. Without a baseline, the
        webhook is read first. If the answer is lost, the webhook is read, and its fields are compared with
        those sent and with the baseline.

        Raises:
            InvalidRequestError: Arguments break the specification; nothing was sent.
            ValidationFailedError, PermissionDeniedError, NotFoundError: The service refused it.
            WriteNotAppliedError: It provably did not happen.
            WriteSupersededError: Another program has changed or deleted it since.
            AmbiguousWriteError: No read shows the outcome.

        Spec: Endpoints, Webhooks.
        """
        return self._write(
            operations.WEBHOOKS_UPDATE,
            {
                "webhook": webhook,
                "url": url,
                "events": events,
                "description": description,
                "status": status,
            },
            baseline=webhook,
            extra_body=extra_body,
            team=team,
            options=options,
        )

    def delete(
        self,
        webhook: Webhook | str,
        *,
        team: str | None = None,
        options: CallOptions | None = None,
    ) -> Write[Deleted]:
        """
        Delete a webhook, which stops its deliveries.

        If the answer is lost, the webhook is read. The delete is applied if the webhook is gone, and sent
        again only on proof that it still exists. If this client has just created it, the read that decides
        comes after the settle window, because an earlier one may lag.

        Raises:
            InvalidRequestError: The id breaks the specification; nothing was sent.
            NotFoundError: It did not exist when the delete first arrived.
            WriteNotAppliedError: It still exists.
            AmbiguousWriteError: All reads failed until the deadline.

        Spec: Endpoints, Webhooks.
        """
        return self._write(
            operations.WEBHOOKS_DELETE,
            {"webhook": webhook},
            baseline=webhook,
            team=team,
            options=options,
        )

    async def replace_lost(
        self,
        lost: HasOutcome | Outcome[Webhook],
        *,
        attempts: int = 3,
    ) -> Webhook:
        """
        Make another webhook in the place of one whose secret was lost, and delete that one.

        *lost* is the ``SecretLostError``, a result of a batch or an outbox, or the outcome of the create. The
        client needs a journal and ``on_secret``, which gets the new webhook and its secret under the key of
        the first create. What this returns has the secret only in the run that made it. Batches and outboxes
        of this client that are open note the replacement, and show it.

        The new webhook is made first, so that no event is missed; until the old one is deleted, events go to
        both. Both writes are keyed in the journal. So call it again after any error or kill, or from several
        tasks and processes that share the journal: one webhook is left. If the secret of the new one is lost
        too, that one is replaced, up to *attempts* times in one call.

        Raises:
            InvalidRequestError: No secret was lost; what was asked for is not stored; or the webhook is gone,
                has changed since, or was found without a tag, so that it may be another program's. It was not
                deleted.
            ConfigurationError: The client has no journal, or no ``on_secret``.
            SecretLostError: Each new secret was lost as well.
            WriteError: The create or the delete did not come about; ``intent.key`` says which.
            ServiceError: One of them was refused, or the first read of the webhook.
            TransportError, DeadlineExceededError: That read failed: nothing was sent.
            JournalError: The journal cannot be used.

        Spec: Endpoints, Webhooks.
        """
        from invsvc_async.resources.lost_secrets import replace_lost

        without_team = Webhooks(self._view.without_team())
        return await replace_lost(self._view, lost, without_team, attempts=attempts)

    async def health(self, *, options: CallOptions | None = None) -> Health:
        """
        Check whether the webhooks module answers. No credential is sent.

        Raises:
            ServiceError, TransportError, DeadlineExceededError: As of any read.

        Spec: Endpoints, Webhooks.
        """
        return await self._read(
            models.Health, operations.WEBHOOKS_HEALTH, {}, options=options
        )


def _is_tag(tag: object) -> bool:
    """Return whether *tag* is true, false, null or a printable string."""
    if tag is None or isinstance(tag, bool):
        return True
    if not isinstance(tag, str):
        return False
    return tag.isprintable() and bool(tag.strip())
