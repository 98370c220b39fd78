"""The settings with which the writes of a batch or outbox are sent, and the entries of new ones."""

from __future__ import annotations

from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING

import attrs
import msgspec
from msgspec.structs import replace

from invsvc_async.client import Client, options_of
from invsvc_async.durable.entry import Entry, State
from invsvc_async.durable.key_names import by_value
from invsvc_async.durable.records import entry_of
from invsvc_async.errors import ConfigurationError, InvalidRequestError
from invsvc_async.reconcile.findings import is_unique
from invsvc_async.reconcile.safety import safer_of_both
from invsvc_async.settings import (
    OnSecret,
    ReconcilePolicy,
    check_count,
    check_on_secret,
    check_rate,
)
from invsvc_async.writes.line_names import thing_of
from invsvc_async.writes.new_intent import new_tag, tag_of
from invsvc_async.writes.write import Write, take_over

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.batch.restored import Restored
    from invsvc_async.durable.intents import Commons
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.transport.client_core import ClientCore, ClientOptions
    from invsvc_async.writes.spec import WriteSpec


_MOST_POLICIES = 1000  # remembered
_encode = msgspec.json.Encoder(decimal_format="number", order="sorted").encode


class _Changed:
    """Policies that are made of others by *change*: one object of each, so that it is packed once."""

    def __init__(self, change: Callable[[ReconcilePolicy], ReconcilePolicy]) -> None:
        self._change = change
        # By the id, because a reader in a policy may have no hash. The first of the pair keeps the policy, so
        # that its id is not given to another one.
        self._known: dict[int, tuple[ReconcilePolicy, ReconcilePolicy]] = {}

    def of(self, policy: ReconcilePolicy) -> ReconcilePolicy:
        """Return what *policy* is changed to."""
        known = self._known.get(id(policy))
        if known is None:
            if len(self._known) >= _MOST_POLICIES:
                self._known.clear()
            known = self._known[id(policy)] = policy, self._change(policy)
        return known[1]


def _that_waits(policy: ReconcilePolicy) -> ReconcilePolicy:
    """Return *policy*, changed to wait when it is limited."""
    return attrs.evolve(policy, wait_when_limited=True)


@attrs.define(eq=False, kw_only=True)
class Sending:
    """
    The settings of ``Batch.open`` or of an outbox, and what is known of the journal once it is open.

    ``epoch`` is the identity of a batch, from which tags are made; ``restored`` are its doubts, if it was
    restored from a copy; ``options`` and ``core`` are the client's.
    """

    client: Client
    concurrency: int
    rate: float | None
    per_team: int | None = None
    tag: bool = True
    on_secret: OnSecret | None = None
    same_mode: bool = False
    stop_after: float | None = None
    epoch: str = ""
    restored: Restored | None = None
    options: ClientOptions = attrs.field(init=False)
    core: ClientCore = attrs.field(init=False)
    _waiting: _Changed = attrs.field(init=False)
    _going_on: _Changed = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.options = options_of(self.client)
        self.core = self.options.core
        self._waiting = _Changed(_that_waits)
        self._going_on = _Changed(partial(safer_of_both, own=self.options.reconcile))
        check_count("concurrency", self.concurrency, least=1)
        if self.per_team is not None:
            check_count("per_team", self.per_team, least=1)
        check_rate(self.rate)
        most = self.stop_after
        if not _is_limit(most):
            raise ConfigurationError(
                f"stop_after: is {most!r}. Pass a number of writes from 1, or a share between 0 and 1."
            )
        check_on_secret(self.on_secret)

    def take_over(self, write: object, by: str) -> WriteSpec:
        """
        Close *write*, sent from here on by the batch or outbox *by*, and return its specification.

        Raises:
            InvalidRequestError: It is no write, has begun, or is one of another client.
        """
        if not isinstance(write, Write):
            raise InvalidRequestError(
                f"write: must be a write, not a {type(write).__name__}"
            )
        spec = take_over(write)
        if spec.options.core is not self.core:
            problem = f"this write was made by another client than the {by}'s"
            raise InvalidRequestError(problem, operation=spec.operation.name)
        return spec

    def as_stored(self, spec: WriteSpec, key: str) -> WriteSpec:
        """Return *spec* under *key*, with a tag where needed, and a policy that waits when limited."""
        tag = spec.tag
        if self.tag and spec.lacks_tag:
            tag = tag_of(self.epoch, key) if self.epoch else new_tag()
        return replace(
            spec,
            key=key,
            tag=tag,
            policy=self._waiting.of(spec.policy),
        )

    def policy_to_go_on(self, stored: ReconcilePolicy) -> ReconcilePolicy:
        """Return the policy under which a write is sent whose intent has *stored*."""
        return self._going_on.of(stored)


def _is_limit(most: object) -> bool:
    """Return whether *most* is ``None``, a number of writes from 1, or a share of them between 0 and 1."""
    if most is None:
        return True
    if isinstance(most, float):
        return 0 < most < 1
    return type(most) is int and most >= 1


def content_of(spec: WriteSpec) -> str:
    """
    Return a digest of the request, 32 characters. The order of a body's members does not matter, nor do the
    digits with which a number is written.

    A user-supplied text as tag is part of it. A generated tag is not.
    """
    request = spec.request
    tag = spec.tag
    body = None
    if request.has_body:
        body = by_value(request.body)
    asked: list[object] = [
        request.operation.name,
        request.method,
        request.raw_path,
        request.path,
        request.query,
        body,
        spec.team,
    ]
    if tag is not None and not is_unique(tag):
        asked.append(tag)
    return blake2b(_encode(asked), digest_size=16).hexdigest()


def new_entry(
    spec: WriteSpec,
    intent: Intent,
    commons: Commons,
    digest: str,
) -> Entry:
    """Return the entry of a write that is to do."""
    return entry_of(
        State.TO_DO,
        intent,
        commons,
        key=intent.key,
        thing=thing_of(spec.options.core, spec.request, spec.tag),
        digest=digest,
        noted=spec.noted,
        team=spec.team or "",
    )
