"""What one write asks for, as a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from invsvc_async.writes.noted import NOTHING_NOTED, Noted

if TYPE_CHECKING:
    from invsvc_async.api.operations import Operation
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.models.common import Model
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.kinds import WriteKind
    from invsvc_async.settings import AnyReader, ReconcilePolicy
    from invsvc_async.transport.client_core import ClientOptions, Request


# made for every write
class WriteSpec(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """
    A write that the user asks for, and how it is settled. A run of a write is a ``Driver``.

    ``key`` is the user's own; ``match`` is what must be equal in another write under it; ``noted`` is stored
    with it. ``baseline`` is the last state of the thing that the user has seen. ``may_tag`` is whether a
    create without a tag may get one: not if the user wants the description as it is. ``resumes`` is the
    intent that is settled before anything is sent.
    """

    options: ClientOptions
    request: Request
    kind: WriteKind
    policy: ReconcilePolicy
    key: str | None = None
    match: Literal["all", "operation"] = "all"
    noted: Noted = NOTHING_NOTED
    tag: str | None = None
    may_tag: bool = True
    baseline: Model | Wire = None
    reader: AnyReader | None = None
    resumes: Intent | None = None

    @property
    def operation(self) -> Operation:
        """The operation of the request."""
        return self.request.operation

    @property
    def team(self) -> str | None:
        """The team that is named in the request."""
        return self.request.team

    @property
    def creates_webhook(self) -> bool:
        """Whether the write creates a webhook. A list shows the webhook again, without the secret."""
        return self.kind.has_secret

    @property
    def lacks_tag(self) -> bool:
        """Whether it creates a webhook, has no tag, and may get one."""
        return self.creates_webhook and self.tag is None and self.may_tag
