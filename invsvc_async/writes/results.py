"""
Make a write's value from its answer, or from a state that was read; by the operation's row, never by
guessing.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import attrs
import msgspec

from invsvc_async import codec, models
from invsvc_async._errors import UnreadableResponseError
from invsvc_async.codec.exact_json import UNREADABLE
from invsvc_async.codec.shape import Shape

if TYPE_CHECKING:
    from invsvc_async.api.operations import Operation
    from invsvc_async.codec.envelope import Envelope
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.transport.session import Request

__all__ = ["Result", "result_of"]

T = TypeVar("T", bound=models.Model)
T_co = TypeVar("T_co", covariant=True)


class Result(Protocol[T_co]):
    """How the value of one operation's writes is made."""

    def of_answer(self, envelope: Envelope, request: Request) -> T_co | None:
        """
        Make the value of a readable answer; ``None`` where the answer does not hold it.

        Raises:
            UnreadableResponseError: The payload is not what the operation answers.

        """
        ...

    def of_state(self, state: Wire) -> T_co:
        """Make the value of what a settling read showed."""
        ...


@attrs.frozen
class _Modelled(Generic[T]):
    model: type[T]

    def of_answer(self, envelope: Envelope, request: Request) -> T | None:  # noqa: ARG002 - the protocol's
        return codec.one(self.model, envelope)

    def of_state(self, state: Wire) -> T:
        return codec.structure(self.model, state)


class _Connection(_Modelled[T]):
    """The connection stands one level down, in ``data.connection``."""

    def of_answer(self, envelope: Envelope, request: Request) -> T | None:  # noqa: ARG002 - the protocol's
        payload = envelope.data
        connection = payload.get("connection") if isinstance(payload, dict) else None
        if not isinstance(connection, dict):
            raise UnreadableResponseError("sheets.save_mapping: the answer holds no data.connection")
        return codec.structure(self.model, connection, meta=codec.meta_of(envelope))


class _Shown(msgspec.Struct):
    """What a payload must hold to be the webhook that was changed."""

    id: str
    url: msgspec.Raw


_SHOWN = msgspec.json.Decoder(_Shown).decode


class _Open(_Modelled[T]):
    """An answer whose payload the specification leaves open: it may be the thing, or nothing of use."""

    def of_answer(self, envelope: Envelope, request: Request) -> T | None:
        if not isinstance(envelope.raw, msgspec.Raw):
            return None
        try:
            shown = _SHOWN(envelope.raw)
        except UNREADABLE:
            return None
        return codec.one(self.model, envelope) if shown.id == request.path.get("id") else None


@attrs.frozen
class _Deleted:
    """``{success, message}``: what was deleted is the request's own."""

    def of_answer(self, envelope: Envelope, request: Request) -> models.Deleted:
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


# Any, here and below: the table names the model, the resource's method types it.
def result_of(operation: Operation) -> Result[Any]:
    """Find how the value of *operation* is made."""
    # Not by the row itself: its hash is that of all its fields.
    return _result(operation.name, operation.result, operation.shape)


@cache
def _result(name: str, result: str, shape: Shape) -> Result[Any]:
    if name == "webhooks.delete":
        return _Deleted()
    if result == "object":
        return _Plain()
    model = getattr(models, result)
    if name == "sheets.save_mapping":
        return _Connection(model)
    return _Open(model) if shape is Shape.OPEN else _Modelled(model)
