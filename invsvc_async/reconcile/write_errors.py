"""Errors that carry the outcome of a write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from invsvc_async._errors import InvsvcError

if TYPE_CHECKING:
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome


class WriteError(InvsvcError):
    """A write was not applied, or it is not known.  ``outcome`` and ``intent`` have the details."""

    hint: ClassVar[str] = ""

    # Any: errors do not carry the type of the value
    def __init__(self, message: str, *, outcome: Outcome[Any], hint: str | None = None) -> None:
        self.outcome = outcome
        super().__init__(f"{message}. {hint or self.hint}")

    @property
    def intent(self) -> Intent:
        """The intent of the write, as plain data.  Keep it to settle the write later."""
        return self.outcome.intent


class WriteNotAppliedError(WriteError):
    """The write provably did not happen, and is not being sent again."""

    hint = "Nothing was changed. It is safe to write again."


class WriteSupersededError(WriteError):
    """Somebody else has changed the resource since.  Sending again would undo that."""

    hint = "Read the current state, then decide."


class AmbiguousWriteError(WriteError):
    """Whether the write was applied is not known, and no read shows it."""

    hint = (
        "Do not just send it again. Keep .intent and call client.settle(intent) later, or check the state "
        "yourself."
    )
    without_read: ClassVar[str] = (
        "Do not just send it again: the specification has no read for it. Check the state yourself, or keep "
        ".intent and call client.settle(intent, reader=…) with your own reader."
    )


class SecretLostError(WriteError):
    """The webhook was created, but the answer with its secret was lost.  ``webhook`` is the one found."""

    hint = "The webhook exists. Delete it and create it again for a secret, or pass on_lost_secret='keep'."

    @property
    def webhook(self) -> Any:  # Any: a models.Webhook, which this layer may not import
        """The webhook that was found, with ``secret=None``."""
        return self.outcome.value


for _each in tuple(globals().values()):
    if isinstance(_each, type) and issubclass(_each, InvsvcError):
        _each.__module__ = "invsvc_async.errors"  # its public name: in tracebacks and pickles
