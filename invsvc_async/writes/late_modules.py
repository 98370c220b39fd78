"""
The modules for settling a write, which a client that only reads does not need.

They are imported before the first send. An import opens files: in a process that has no descriptors left, it
fails, and then a write that was sent could not be settled.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from invsvc_async import models
from invsvc_async.errors import NotSentError

if TYPE_CHECKING:
    from invsvc_async.api.operations import Operation

_NAMES: Final = (
    "tenacity",
    "invsvc_async.codec.decode_lenient",
    "invsvc_async.codec.decoder",
    "invsvc_async.codec.encode",
    "invsvc_async.reconcile.json_form",
    "invsvc_async.reconcile.kinds",
)
_ready: set[str] = set()  # operations whose modules were imported


def load_for(operation: Operation) -> None:
    """
    Import what settles a write of *operation*, unless that was done.

    Raises:
        NotSentError: That is not possible, so nothing is to be sent.
    """
    if operation.name in _ready:
        return
    try:
        for name in _NAMES:
            import_module(name)
        getattr(models, operation.result, None)  # which imports the module of the model
    except (OSError, ImportError) as error:
        raise NotSentError(
            f"{operation.name}: the modules that settle a write cannot be imported ({error}). Nothing was "
            "sent. If this process has too many files open, close some, or raise its limit (ulimit -n).",
            operation=operation.name,
        ) from error
    _ready.add(operation.name)
