"""The answers to one write: how each attempt ended, the value, and what later writes can use of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Generic, TypeVar

from invsvc_async.errors import InvsvcError, ServiceError, TransportError, UnreadableResponseError
from invsvc_async.models.common import once
from invsvc_async.reconcile.findings import is_unique
from invsvc_async.reconcile.history import Attempt, End
from invsvc_async.reconcile.own_writes import milliseconds
from invsvc_async.transport.session import stamp_of
from invsvc_async.writes.results import of_another, result_of
from invsvc_async.writes.state_reads import facts_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Raw

    from invsvc_async.api.operations import Operation
    from invsvc_async.codec.envelope import Envelope
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.history import Send
    from invsvc_async.reconcile.kinds import Kind
    from invsvc_async.transport.session import Request
    from invsvc_async.transport.transport import Exchange
    from invsvc_async.writes.results import Result
    from invsvc_async.writes.spec import WriteSpec

__all__ = ["Answers"]

T = TypeVar("T")

log: logging.Logger = logging.getLogger("invsvc_async.writes")


class Answers(Generic[T]):
    """
    The answers to the requests of one write, in *line*, and what is learnt from them.

    ``value`` is that of a readable answer, ``accepted`` that of a 202, which only says that the write will be
    done, and ``error`` the one of the last attempt that failed.
    """

    def __init__(self, spec: WriteSpec, request: Request, line: str | None) -> None:
        self.value: T | None = None
        self.accepted: T | None = None
        self.error: InvsvcError | None = None
        self.read: tuple[Wire, Wire | Raw] = None, None  # what the last read showed, and its JSON
        self._spec = spec
        self._request = request
        self._line = line
        self._result: Result[T] = result_of(request.operation)

    def not_sent(self, error: InvsvcError, started: float, ended: float) -> Attempt:
        """Return an attempt that had no request, because there was no token."""
        self.error = error
        return Attempt(started=started, ended=ended, end=End.NOT_SENT, error=facts_of(error))

    def attempt(self, exchange: Exchange, send: Send, identity: Callable[[], str]) -> Attempt:
        """Return how an attempt of the write with that *identity* ended. Keep its value, or its error."""
        assert exchange.end is not None
        readable, own, of_authentication, stamp, retry_after = False, False, False, None, None
        failure: InvsvcError | None = None
        options = self._spec.options
        try:
            envelope = options.opened(self._request, exchange)
            value = self._value_in(envelope, identity)
            if _shows_mode(type(value)):
                options.session.saw(getattr(value, "livemode", None))
            readable, stamp, own = True, envelope.stamp, True
            if exchange.status == 202:
                self.accepted = value
            else:
                self.value = value
                self._learn(exchange, envelope)
        except ServiceError as error:
            failure, stamp, own, retry_after = error, stamp_of(error), error.own_envelope, error.retry_after
            of_authentication = error.of_authentication
        except TransportError as error:
            failure = error
        except Exception as error:  # noqa: BLE001 - the request was sent, and the attempt must be recorded
            failure = _unread(self._request.operation, exchange, error)
        self.error = failure or self.error
        return Attempt(
            started=exchange.started,
            ended=exchange.ended,
            end=exchange.end,
            status=exchange.status,
            readable=readable,
            own_envelope=own,
            of_authentication=of_authentication,
            error=facts_of(failure) if failure else None,
            stamp=stamp,
            retry_after=retry_after,
            timeout=send.attempt_timeout,
        )

    def _value_in(self, envelope: Envelope, identity: Callable[[], str]) -> T | None:
        """
        Return the value in an answer.

        Raises:
            UnreadableResponseError: The answer does not have the form of this operation's, or it is about
                another thing.

        """
        value = self._result.of_answer(envelope, self._request)
        if self._spec.kind.creates and self._is_anothers(value, identity):
            raise of_another(envelope, getattr(value, "id", None))
        return value

    def _is_anothers(self, made: object, identity: Callable[[], str]) -> bool:
        """Return whether what the answer to a create shows, as a webhook with another URL, is another's."""
        kind = self._spec.kind
        name, normal = kind.found_by or "", kind.normal
        shown, wanted = getattr(made, name, None), self._request.body[name]
        if not isinstance(shown, str) or shown == wanted or normal(shown) == normal(wanted):
            return False
        if kind.has_secret and getattr(made, "secret", None) is None:  # only the answer has it
            return True
        claim = self._spec.options.session.writes.claims.get(getattr(made, "id", ""))
        return claim is not None and claim[1] and claim[0] != identity()

    def _learn(self, exchange: Exchange, envelope: Envelope) -> None:
        """Keep what the answer showed, for the writes that follow."""
        spec, line, value = self._spec, self._line, self.value
        kind, writes = spec.kind, spec.options.session.writes
        if line is None:
            return
        if kind.creates:
            if not is_unique(spec.tag):
                made, at = getattr(value, "id", ""), getattr(value, "created_at", None)
                writes.learn_created(line, made, None if at is None else milliseconds(at))
            return
        state: object = {} if kind.deletes else value
        if kind.shown_by is None or state is None or (kind.always and state and _is_partial(kind, state)):
            writes.forget_state(line)
        else:
            shown = {} if kind.deletes else envelope.raw
            weight, started, ended = len(exchange.answer), exchange.started, exchange.ended
            writes.learn_state(
                spec.team, line, shown, started, ended, stamp=envelope.stamp, weight=weight, written=True
            )

    def of_state(self, state: Wire) -> T:
        """Make the value from the state that a read showed."""
        seen, shown = self.read
        return self._result.of_state(shown if state is seen and shown is not None else state)


def _unread(operation: Operation, exchange: Exchange, error: Exception) -> TransportError:
    """Return the error for an answer that failed to parse in an unexpected way. Log it as a bug."""
    log.error("%s: parsing the answer failed: %s", operation.name, type(error).__name__)
    return UnreadableResponseError(
        f"{operation.name}: parsing the answer (HTTP {exchange.status}) failed with {type(error).__name__}",
        operation=operation.name,
        status=exchange.status,
        raw=exchange.answer,
    )


def _is_partial(kind: Kind, state: object) -> bool:
    """Return whether an answer shows only a part of the thing, as the specification allows for webhooks."""
    return any(getattr(state, name, None) is None for name in kind.always)


@once
def _shows_mode(kind: type[object]) -> bool:
    """Return whether models of *kind* have ``livemode``. Asking a model that lacks it is slow."""
    return hasattr(kind, "livemode")
