"""How the value of each operation is made: from a readable answer, or from the state that a read showed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from invsvc_async import codec, models
from invsvc_async.codec.envelope import Envelope, Shape
from invsvc_async.codec.exact_json import UNREADABLE, Wire
from invsvc_async.errors import UnreadableResponseError
from invsvc_async.reconcile.compare import names_another

if TYPE_CHECKING:
    from invsvc_async.api.operations import Operation
    from invsvc_async.transport.client_core import Request


_OPEN = Shape.OPEN  # cheaper than access through the class
# Results of operations whose payload is not the model itself.
_NO_MODEL = frozenset({"object", "Deleted", "SheetConnection"})


def of_another(envelope: Envelope, shown: object) -> UnreadableResponseError:
    """Make the error for an answer about the thing with the id *shown*, which was not asked for."""
    return UnreadableResponseError(
        f"the answer is about {shown!r:.100}, so it belongs to another request. Something between this "
        "client and the service mixes up answers.",
        status=envelope.status,
        raw=envelope.content,
    )


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


# Any: the operation names the model, and the method of the resource types it.
def value_of_answer(envelope: Envelope, request: Request) -> Any:
    """
    Make the value of a write from a readable answer; ``None`` if the answer does not contain it.

    Raises:
        UnreadableResponseError: The answer is about another thing, or lacks what it must have.
    """
    result = request.operation.result
    if result not in _NO_MODEL:  # nearly all
        return _payload(envelope, request)
    match result:
        case "object":
            return envelope.data
        case "Deleted":
            plain = _deleted(envelope, request)
        case _:
            plain = _connection(envelope, request)
    return codec.structure(getattr(models, result), plain, meta=codec.meta_of(envelope))


def _payload(envelope: Envelope, request: Request) -> Any:  # Any: as said
    """Return the payload, which is the model itself, as that."""
    operation = request.operation
    is_open = operation.shape is _OPEN
    try:
        value = codec.one(getattr(models, operation.result), envelope)
    except UnreadableResponseError:
        if is_open:
            return None
        raise
    # Nearly all answers have both, and are not decoded twice.
    has_both = getattr(value, "id", None) and getattr(value, "url", None)
    if is_open and not has_both and not _shows_webhook(envelope, request):
        return None
    shown = getattr(value, "id", None)
    if shown != request.path.get("id") and names_another(shown, request.path):
        raise of_another(envelope, shown)
    return value


def _deleted(envelope: Envelope, request: Request) -> Wire:
    """Return the answer to a deletion, {success, message}, with the id of the request."""
    _shows_webhook(envelope, request)
    return {"id": request.path.get("id"), "message": envelope.message}


def _connection(envelope: Envelope, request: Request) -> Wire:
    """Return the connection of a sheet, which is one level down."""
    payload = envelope.data
    connection = payload.get("connection") if isinstance(payload, dict) else None
    if not isinstance(connection, dict):
        raise UnreadableResponseError(
            f"{request.operation.name}: the answer has no data.connection"
        )
    return connection


def value_of_state(operation: Operation, state: Wire | msgspec.Raw) -> Any:
    """Make the value of a write from the state that a read showed, or its JSON."""
    if operation.result == "object":
        return state
    model = getattr(models, operation.result)
    if isinstance(state, msgspec.Raw):
        return codec.decode(model, state)
    return codec.structure(model, state)
