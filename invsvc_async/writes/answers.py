"""
The answers to the requests of a write: how each attempt ended, and what its answer showed.

Nothing that an answer may contain keeps the attempt from being recorded: the request was sent.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from invsvc_async.codec.fields import maker_of
from invsvc_async.errors import (
    InvsvcError,
    ServiceError,
    TransportError,
    UnreadableResponseError,
)
from invsvc_async.models.common import once
from invsvc_async.reconcile.findings import is_unique
from invsvc_async.reconcile.history import Attempt, End, ErrorFacts, Send
from invsvc_async.transport.client_core import stamp_of
from invsvc_async.writes.line_names import creates, kind_of_create
from invsvc_async.writes.things import milliseconds
from invsvc_async.writes.values import of_another, value_of_answer

if TYPE_CHECKING:
    from invsvc_async.api.operations import Operation
    from invsvc_async.codec.envelope import Envelope
    from invsvc_async.reconcile.kinds import WriteKind
    from invsvc_async.transport.transport import Exchange
    from invsvc_async.writes.run_record import RunRecord
    from invsvc_async.writes.spec import WriteSpec


T = TypeVar("T")
_attempt = maker_of(Attempt)

log: logging.Logger = logging.getLogger("invsvc_async.writes")


class Answers(msgspec.Struct, Generic[T], eq=False):
    """
    The answers to the requests of a run, whose *record* they do not change.

    ``value`` is that of a readable answer, ``accepted`` that of a 202, which only says that the write will be
    done, and ``error`` the one of the last attempt that failed.
    """

    spec: WriteSpec
    record: RunRecord
    value: T | None = None
    accepted: T | None = None
    error: InvsvcError | None = None

    def not_sent(
        self,
        error: InvsvcError,
        started: float,
        ended: float,
    ) -> Attempt:
        """Return an attempt that had no request, because of *error*: no token could be had, say."""
        self.error = error
        return Attempt(
            started=started,
            ended=ended,
            end=End.NOT_SENT,
            error=facts_of(error),
        )

    def attempt(
        self,
        exchange: Exchange,
        send: Send,
        line: str | None,
    ) -> Attempt:
        """
        Return how an attempt of the write, in *line*, ended. Keep its value, or its error.

        Whatever an answer is like, the attempt is recorded: the request was sent.
        """
        try:
            envelope = self._read(exchange)
        except Exception as error:  # noqa: BLE001 - as said
            return self._failed(exchange, send, error)
        facts = None
        try:
            if line is not None and exchange.status != 202:
                self._learn(line, exchange, envelope)
        except Exception as error:  # noqa: BLE001 - as said; the value is there all the same
            facts = self._keep_error(exchange, error)
        assert exchange.end is not None
        return _attempt(
            started=exchange.started,
            ended=exchange.ended,
            end=exchange.end,
            status=exchange.status,
            readable=True,
            own_envelope=True,
            error=facts,
            stamp=envelope.stamp,
            timeout=send.attempt_timeout,
        )

    def _read(self, exchange: Exchange) -> Envelope:
        """
        Read the answer, keep its value, and return its envelope.

        Raises:
            InvsvcError: There is no answer, or it is an error, or cannot be read.
        """
        spec = self.spec
        request = spec.request
        core = spec.options.core
        envelope = spec.options.parse_answer(request, exchange)
        value: T | None = value_of_answer(envelope, request)
        if spec.kind.creates:
            self._check_own(value, envelope)
        if _shows_mode(type(value)):
            mode = getattr(value, "livemode", None)
            if mode is not core.livemode:
                core.saw(mode)
        if exchange.status == 202:
            self.accepted = value
        else:
            self.value = value
        return envelope

    def _failed(
        self,
        exchange: Exchange,
        send: Send,
        error: Exception,
    ) -> Attempt:
        """Return how an attempt ended that has no readable answer. Keep its error."""
        facts = self._keep_error(exchange, error)
        own = False
        of_authentication = False
        stamp = None
        retry_after = None
        if isinstance(error, ServiceError):
            own = error.own_envelope
            of_authentication = error.of_authentication
            stamp = stamp_of(error)
            retry_after = error.retry_after
        assert exchange.end is not None
        return _attempt(
            started=exchange.started,
            ended=exchange.ended,
            end=exchange.end,
            status=exchange.status,
            own_envelope=own,
            of_authentication=of_authentication,
            error=facts,
            stamp=stamp,
            retry_after=retry_after,
            timeout=send.attempt_timeout,
        )

    def _keep_error(self, exchange: Exchange, error: Exception) -> ErrorFacts:
        """Keep *error*, of an attempt, and return what the history keeps of it."""
        if not isinstance(error, (ServiceError, TransportError)):
            error = _unread(self.spec.request.operation, exchange, error)
        self.error = error
        return facts_of(error)

    def _check_own(self, made: object, envelope: Envelope) -> None:
        """Raise ``UnreadableResponseError`` if what the answer to a create shows is another's, by its URL."""
        if self._shows_another(self.spec.kind, made):
            raise of_another(envelope, field_of(made, "id"))

    def _shows_another(self, kind: WriteKind, made: object) -> bool:
        """Return whether *made*, in the answer to a create of *kind*, is another's, by its URL."""
        name = kind.found_by or ""
        shown = field_of(made, name)
        wanted = field_of(self.spec.request.body, name)
        if not isinstance(shown, str) or shown == wanted:
            return False
        if isinstance(wanted, str) and kind.normal(shown) == kind.normal(wanted):
            return False
        # Only the answer to the create has the secret.
        lacks_secret = kind.has_secret and field_of(made, "secret") is None
        return lacks_secret or self._is_anothers(field_of(made, "id"))

    def made_id(self) -> str | None:
        """
        Return the id of the thing that the answer to a create shows; ``None`` if no answer shows one.

        The answer to a raw create was not checked when it was read: it may show another's thing.
        """
        made = self.value
        made_id = field_of(made, "id")
        if not isinstance(made_id, str):
            return None
        kind = kind_of_create(self.spec.request)
        is_raw = kind is not self.spec.kind
        if kind is not None and is_raw and self._shows_another(kind, made):
            return None
        return made_id

    def _is_anothers(self, made_id: object) -> bool:
        """Return whether the thing *made_id* was surely made by another write."""
        if not isinstance(made_id, str):
            return False
        claim = self.spec.options.core.writes.claims.get(made_id)
        if claim is None:
            return False
        owner, is_certain = claim
        return is_certain and owner != self.record.intent.identity

    def use_accepted(self, found: object) -> None:
        """Use the value of a 202 if it shows the thing with the id *found*, which was found since."""
        if getattr(self.accepted, "id", "") == found:
            self.value = self.accepted

    # --- what later writes have to know

    def _learn(
        self,
        line: str,
        exchange: Exchange,
        envelope: Envelope,
    ) -> None:
        """Keep what the answer showed, for the writes that follow."""
        spec = self.spec
        kind = spec.kind
        shown = spec.options.core.writes.shown
        if creates(spec.request):
            if not is_unique(spec.tag):
                self._learn_created(line)
            return
        if not self._shows_state():
            shown.forget_state(line)
            return
        state: object = envelope.raw
        if kind.deletes:
            state = {}
        shown.learn_state(
            spec.request.team,
            line,
            state,
            exchange.started,
            exchange.ended,
            stamp=envelope.stamp,
            weight=len(exchange.answer),
            written=True,
        )

    def _learn_created(self, line: str) -> None:
        """Keep the id that the answer gave to a create without a tag, for the creates that follow."""
        made_id = self.made_id()
        if made_id is None:
            return
        at = field_of(self.value, "created_at")
        created_at = milliseconds(at) if isinstance(at, datetime) else at
        self.spec.options.core.writes.shown.learn_created(line, made_id, created_at)

    def _shows_state(self) -> bool:
        """Return whether the answer shows the whole state of the thing. It may show a part of a webhook."""
        kind = self.spec.kind
        if kind.shown_by is None or self.value is None:
            return False
        if kind.deletes:
            return True
        return None not in [
            getattr(self.value, name, None) for name in kind.thing.always
        ]


def field_of(shown: object, name: str) -> Any:  # Any: of each field its own
    """Return the field *name* of a model, or of wire data; ``None`` if it is not there."""
    if isinstance(shown, dict):
        return shown.get(name)
    return getattr(shown, name, None)


def _unread(
    operation: Operation,
    exchange: Exchange,
    error: Exception,
) -> TransportError:
    """Return the error for an answer that failed to parse in an unexpected way. Log it as a bug."""
    log.error("%s: parsing the answer failed: %s", operation.name, type(error).__name__)
    return UnreadableResponseError(
        f"{operation.name}: parsing the answer (HTTP {exchange.status}) failed with {type(error).__name__}",
        operation=operation.name,
        status=exchange.status,
        raw=exchange.answer,
    )


@once
def _shows_mode(kind: type[object]) -> bool:
    """Return whether models of *kind* have ``livemode``. Asking a model that lacks it is slow."""
    return hasattr(kind, "livemode")


def facts_of(error: InvsvcError) -> ErrorFacts:
    """Return what a history keeps of *error*, which excludes the body."""
    if isinstance(error, ServiceError):
        return ErrorFacts(
            kind=type(error).__name__,
            message=error.message or str(error),
            status=error.status,
            code=error.code,
        )
    status = error.status if isinstance(error, TransportError) else None
    return ErrorFacts(
        kind=type(error).__name__,
        message=str(error),
        status=status,
    )
