"""
Another webhook in the place of one whose secret was lost.

Only the answer to a create has the secret, so nothing brings back one that was lost with that answer: another
webhook has to be made, and the first one deleted.  Both writes are keyed, with keys made of that of the first
create and of the id of the webhook that is replaced.  So whoever replaces the same webhook, at the same time,
again, or after a kill at any point, makes the same two writes:

==============================================  ==========================================================
ended after                                     the next call
==============================================  ==========================================================
the create was stored, before its answer        settles it; if its secret is lost, replaces that one, too
the create, before the delete                   gets the stored outcome, and deletes
the delete                                      gets both stored outcomes, and sends nothing
==============================================  ==========================================================

The new webhook is made before the old one is deleted: between the two, each event goes to both.  In the
other order, events of that time would go to nobody, and after a kill there, until somebody calls again.

A webhook is deleted only if it is provably that of the create, and still is as it was found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import msgspec

from invsvc_async.errors import ConfigurationError, InvalidRequestError, NotFoundError
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.reconcile.findings import is_unique
from invsvc_async.reconcile.kinds import kind_of_write
from invsvc_async.reconcile.outcome import OutcomeBase, SecretLostError
from invsvc_async.transport.client_core import ClientOptions
from invsvc_async.writes.journal import keys_of
from invsvc_async.writes.new_intent import request_of, untagged_body
from invsvc_async.writes.recovery import check_scope
from invsvc_async.writes.spec import WriteSpec
from invsvc_async.writes.write import Write

if TYPE_CHECKING:
    from invsvc_async.models import Deleted, Webhook
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.settings import OnSecret

_LONGEST_KEY: Final = (
    120  # characters that are kept of a key, so that there is room for the rest
)
_FIELDS: Final = ("url", "events", "description", "status")
_PROVEN: Final = ("answered", "tag", "person")
_NOTHING_SENT: Final = "Nothing was sent."
_INSTEAD_OF: Final = "instead of"


class HasOutcome(Protocol):
    """What has the outcome of a create: a ``SecretLostError``, or a result of a batch or an outbox."""

    @property
    def outcome(self) -> Outcome[Any] | None:  # Any: of any operation
        """The outcome, if it is known."""
        ...


def may_be_kept(outcome: OutcomeBase[Any]) -> bool:
    """
    Return whether ``on_secret`` may have had the secret that *outcome* calls lost.

    That is so if a process was killed after it had sent the create, perhaps just after the answer came; or if
    ``on_secret`` was called, but cancelled. Otherwise the answer was lost, and nobody has the secret.
    """
    return any(each.end is None or each.end.secret_lost for each in outcome.intent.sent)


def key_of_replacement(first_key: str, webhook: str) -> str:
    """Return the key of the create in the place of *webhook*, which the create of *first_key* made."""
    return _key(first_key, f"{_INSTEAD_OF} {webhook}")


def key_of_deletion(first_key: str, webhook: str) -> str:
    """Return the key of the delete of *webhook*, once another one stands in its place."""
    return _key(first_key, f"delete {webhook}")


def first_key_of(key: str) -> str:
    """Return the key of the first create if *key* is that of another one in its place; otherwise *key*."""
    first, found, _ = key.rpartition(f", {_INSTEAD_OF} ")
    if found:
        return first
    return key


def _key(first_key: str, what: str) -> str:
    # so that the rest has room; the id in it tells the keys apart
    return f"{first_key[:_LONGEST_KEY]}, {what}"


class _Options(ClientOptions, kw_only=True, eq=False):
    """The options of a create that stands for another one, whose key ``on_secret`` gets."""

    first_key: str

    @classmethod
    def of(cls, view: ClientOptions, first_key: str) -> _Options:
        """Return the options of *view* for a create in the place of that under *first_key*."""
        given: dict[str, Any] = msgspec.structs.asdict(view)  # Any: as the fields
        return cls(**given, first_key=first_key)

    @property
    def on_secret(self) -> OnSecret | None:
        """Pass each secret on under the key of the first create."""
        hook = self.core.on_secret
        if hook is None:
            return None
        return lambda _key, webhook: hook(self.first_key, webhook)


class Operations(Protocol):
    """The methods of ``Webhooks`` that are needed."""

    async def get(self, webhook_id: str, *, team: str | None = None) -> Webhook:
        """Read a webhook."""
        ...

    def delete(self, webhook: str, *, team: str | None = None) -> Write[Deleted]:
        """Delete a webhook."""
        ...


async def replace_lost(
    view: ClientOptions,
    lost: HasOutcome | Outcome[Webhook],
    webhooks: Operations,
    *,
    attempts: int,
) -> Webhook:
    """Do what :meth:`Webhooks.replace_lost` says. *webhooks* are those of *view* without its team."""
    outcome = _checked(view, lost)
    if attempts < 1:
        raise InvalidRequestError("attempts: must be at least 1", hint=_NOTHING_SENT)
    replacing = _Replacing(view, outcome, webhooks)
    await replacing.check_still_there()
    left = attempts
    current = cast("Webhook", outcome.value)
    while left:
        made = await replacing.create_instead_of(current)
        if made.secret_lost:
            _check_ours(made)
        await replacing.delete(current)
        current = cast("Webhook", made.value)
        if not made.secret_lost:
            await replacing.tell_stores(current)
            return current
        if not made.replayed:
            left -= 1
    raise SecretLostError(
        f"replace_lost: {attempts} more webhooks were made, one in the place of the other, and each time the "
        f"secret was lost. {current.id} is the one that exists",
        outcome=outcome,
        hint="Call it again with this error to go on.",
    )


class _Replacing:
    """The writes that put another webhook in the place of that of *lost*."""

    def __init__(
        self,
        view: ClientOptions,
        lost: Outcome[Webhook],
        webhooks: Operations,
    ) -> None:
        self._lost = lost
        self._webhooks = webhooks
        self._intent: Intent = lost.started_as
        self._team = self._intent.scope.team  # not that of the view
        self._keys = keys_of(view.core.writes.journal)
        self._creating = _Options.of(view.without_team(), self._intent.key)

    async def check_still_there(self) -> None:
        """
        Check that the webhook exists as it was found, or was replaced before.

        Raises:
            InvalidRequestError: It is gone without another in its place, or has changed.
        """
        found = cast("Webhook", self._lost.value)
        try:
            seen = await self._webhooks.get(found.id, team=self._team)
        except NotFoundError:
            key = key_of_replacement(self._intent.key, found.id)
            if await self._keys.has(key, self._team):
                return
            raise InvalidRequestError(
                f"replace_lost: {found.id} is not there, and no webhook was made in its place",
                hint=f"{_NOTHING_SENT} If you still want one, create it under another key.",
            ) from None
        changed = _changed_fields(found, seen)
        if changed:
            raise InvalidRequestError(
                f"replace_lost: {found.id} has been changed since it was created: {', '.join(changed)}",
                hint=f"{_NOTHING_SENT} Create another from its current state, then delete it.",
            )

    async def create_instead_of(self, webhook: Webhook) -> Outcome[Webhook]:
        """Create what the first create asked for, once for each *webhook*; raise unless it is applied."""
        request = msgspec.structs.replace(
            request_of(self._intent), body=untagged_body(self._intent)
        )
        spec = WriteSpec(
            options=self._creating,
            request=request,
            kind=kind_of_write(request.operation),
            policy=self._creating.reconcile,
        )
        write: Write[Webhook] = Write(spec)
        key = key_of_replacement(self._intent.key, webhook.id)
        outcome = await write.keyed(key).outcome()
        if outcome.verdict is not Verdict.APPLIED:
            outcome.unwrap()
        return outcome

    async def delete(self, webhook: Webhook) -> None:
        """Delete *webhook* once; raise unless it is gone then."""
        delete = self._webhooks.delete(webhook.id, team=self._team)
        key = key_of_deletion(self._intent.key, webhook.id)
        outcome = await delete.keyed(key).outcome()
        is_gone = isinstance(outcome.error, NotFoundError)
        if outcome.verdict is Verdict.REFUSED and is_gone:
            return
        outcome.unwrap()

    async def tell_stores(self, webhook: Webhook) -> None:
        """Note in the open batches and outboxes of the client that *webhook* replaces the first one."""
        first = cast("Webhook", self._lost.value)
        for notes in [*self._creating.core.replacements]:
            await notes.note(self._intent.key, first.id, webhook.id)


def _checked(
    view: ClientOptions, lost: HasOutcome | Outcome[Webhook]
) -> Outcome[Webhook]:
    """
    Return the outcome whose secret was lost.

    Raises:
        ConfigurationError: The client cannot keep the keys, or the secrets, of what is sent.
        InvalidRequestError: No secret was lost, or the webhook is not provably that of the create.
    """
    if view.core.on_secret is None or keys_of(view.core.writes.journal) is None:
        raise ConfigurationError(
            "replace_lost: needs a client with journal=… and on_secret=…, so that a kill in the middle "
            f"neither makes two webhooks nor loses the next secret. {_NOTHING_SENT}"
        )
    outcome: object = lost
    if not isinstance(lost, OutcomeBase) and hasattr(lost, "outcome"):
        outcome = lost.outcome
        if outcome is None:
            raise _not_kept()
    if not isinstance(outcome, OutcomeBase):
        raise InvalidRequestError(
            "lost: must be a SecretLostError, a result of a batch or an outbox, or an Outcome, not a "
            f"{type(lost).__name__}",
            hint=_NOTHING_SENT,
        )
    if not outcome.secret_lost:
        raise InvalidRequestError(
            f"lost: the secret of this write is not lost, but {outcome.secret or 'none was made'}",
            hint=f"{_NOTHING_SENT} There is nothing to replace.",
        )
    intent = outcome.started_as
    if not isinstance(getattr(outcome.value, "id", None), str) or intent.body is None:
        raise _not_kept()
    check_scope(view, intent, same_mode=True)
    _check_ours(outcome)
    return cast("Outcome[Webhook]", outcome)


def _not_kept() -> InvalidRequestError:
    return InvalidRequestError(
        "lost: what was asked for is not stored: it was pruned, a person has resolved the write, or an "
        "earlier version of the package ran the batch",
        hint=f"{_NOTHING_SENT} Create another webhook under a new key, then delete this one.",
    )


def _check_ours(outcome: OutcomeBase[Any]) -> None:
    """Raise InvalidRequestError unless the webhook of *outcome* is provably the one that the create made."""
    is_proven = outcome.evidence.basis in _PROVEN
    if is_proven and is_unique(outcome.started_as.tag):
        return
    named = cast("Webhook", outcome.value).id
    raise InvalidRequestError(
        f"lost: {named} was found without a tag, so it may be another program's",
        hint="It was not deleted. Look at it, and replace it yourself.",
    )


def _changed_fields(found: Webhook, seen: Webhook) -> list[str]:
    """Return the names of what has changed since the webhook was *found*, if that showed more than its id."""
    if not hasattr(found, "url"):
        return []
    return [
        name
        for name in _FIELDS
        if getattr(seen, name, None) != getattr(found, name, None)
    ]
