"""The values of writes, made from their answers or from a state that was read."""

from __future__ import annotations

import inspect
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import attrs
import msgspec

from invsvc_async import codec, models
from invsvc_async.codec.envelope import Shape
from invsvc_async.codec.exact_json import UNREADABLE
from invsvc_async.errors import UnreadableResponseError
from invsvc_async.reconcile.compare import names_another

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.api.operations import Operation
    from invsvc_async.codec.envelope import Envelope
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.transport.session import Request

__all__ = ["Result", "of_another", "result_of", "secret_passed_on"]

T = TypeVar("T", bound=models.Model)
T_co = TypeVar("T_co", covariant=True)


class Result(Protocol[T_co]):
    """How the value of one operation's writes is made."""

    def of_answer(self, envelope: Envelope, request: Request) -> T_co | None:
        """
        Make the value from a readable answer, or return ``None`` if the answer does not contain it.

        Raises:
            UnreadableResponseError: The payload does not have the form that the operation answers with.

        """
        ...

    def of_state(self, state: Wire | msgspec.Raw) -> T_co:
        """Make the value from the state that a read showed, or its JSON."""
        ...


def of_another(envelope: Envelope, shown: object) -> UnreadableResponseError:
    """Make the error for an answer about the thing with the id *shown*, which was not asked for."""
    return UnreadableResponseError(
        f"the answer is about {shown!r:.100}, so it belongs to another request. Something between this "
        "client and the service mixes up answers.",
        status=envelope.status,
        raw=envelope.content,
    )


@attrs.frozen
class _Modelled(Generic[T]):
    model: type[T]

    def of_answer(self, envelope: Envelope, request: Request) -> T | None:
        value = codec.one(self.model, envelope)
        shown = getattr(value, "id", None)
        if names_another(shown, request.path):
            raise of_another(envelope, shown)
        return value

    def of_state(self, state: Wire | msgspec.Raw) -> T:
        if isinstance(state, msgspec.Raw):
            return codec.decode(self.model, state)
        return codec.structure(self.model, state)


class _Connection(_Modelled[T]):
    """A connection is one level down, in ``data.connection``."""

    def of_answer(self, envelope: Envelope, request: Request) -> T | None:  # noqa: ARG002 - the protocol's
        payload = envelope.data
        connection = payload.get("connection") if isinstance(payload, dict) else None
        if not isinstance(connection, dict):
            raise UnreadableResponseError("sheets.save_mapping: the answer has no data.connection")
        return codec.structure(self.model, connection, meta=codec.meta_of(envelope))


class _Shown(msgspec.Struct):
    """The fields that a payload needs to be the webhook that was changed."""

    id: str
    url: msgspec.Raw


_SHOWN = msgspec.json.Decoder(_Shown).decode


def _shows_webhook(envelope: Envelope, request: Request) -> bool:
    """
    Return whether the payload is the webhook of *request*. It is not specified, so it may be anything else.

    Raises:
        UnreadableResponseError: It is another webhook.

    """
    if not isinstance(envelope.raw, msgspec.Raw):
        return False
    try:
        shown = _SHOWN(envelope.raw)
    except UNREADABLE:
        return False
    if names_another(shown.id, request.path):
        raise of_another(envelope, shown.id)
    return True


class _Open(_Modelled[T]):
    """An answer whose payload is not specified: it may be the webhook, or anything else."""

    def of_answer(self, envelope: Envelope, request: Request) -> T | None:
        return codec.one(self.model, envelope) if _shows_webhook(envelope, request) else None


@attrs.frozen
class _Deleted:
    """``{success, message}``: the id is that of the request."""

    def of_answer(self, envelope: Envelope, request: Request) -> models.Deleted:
        _shows_webhook(envelope, request)
        return codec.structure(
            models.Deleted,
            {"id": request.path.get("id"), "message": envelope.message},
            meta=codec.meta_of(envelope),
        )

    def of_state(self, state: Wire) -> models.Deleted:
        return codec.structure(models.Deleted, state)


@attrs.frozen
class _Plain:
    """Any other write: its payload as plain data."""

    def of_answer(self, envelope: Envelope, request: Request) -> Wire:  # noqa: ARG002 - the protocol's
        return envelope.data

    def of_state(self, state: Wire) -> Wire:
        return state


# Any, here and below: the operation names the model, and the method of the resource types it.
def result_of(operation: Operation) -> Result[Any]:
    """Return how the value of *operation* is made."""
    # Not cached by the operation: its hash covers all its fields, which is slow.
    return _result(operation.name, operation.result, operation.shape)


@cache
def _result(name: str, result: str, shape: Shape) -> Result[Any]:
    if result == "Deleted":
        return _Deleted()
    if result == "object":
        return _Plain()
    model = getattr(models, result)
    if name == "sheets.save_mapping":
        return _Connection(model)
    return _Open(model) if shape is Shape.OPEN else _Modelled(model)


async def secret_passed_on(
    outcome: Outcome[Any], key: str, hook: Callable[[str, Any], Awaitable[None] | None]
) -> Outcome[Any]:  # Any: of any operation; a Webhook
    """Pass the secret of a new webhook on to *hook*, and return the outcome, which says that it has it."""
    if outcome.secret != "returned":  # noqa: S105 - a state
        return outcome
    handed = hook(key, outcome.value)
    if handed is not None and inspect.isawaitable(handed):
        await handed
    return attrs.evolve(outcome, secret="delivered")  # noqa: S106 - a state
