"""Errors that carry the outcome of a write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from invsvc_async._errors import InvsvcError

if TYPE_CHECKING:
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome


class WriteError(InvsvcError):
    """A write did not come about, or not as asked; ``outcome`` and ``intent`` tell the whole story."""

    hint: ClassVar[str] = ""

    # Any: errors do not carry the type of the value
    def __init__(self, message: str, *, outcome: Outcome[Any], hint: str | None = None) -> None:
        self.outcome = outcome
        super().__init__(f"{message}. {hint or self.hint}")

    @property
    def intent(self) -> Intent:
        """What was to be written, as plain data: keep it to find out later."""
        return self.outcome.intent


class WriteNotAppliedError(WriteError):
    """The write provably did not happen, and is not being sent again."""

    hint = "Nothing was changed: it is safe to write again."


class WriteSupersededError(WriteError):
    """Somebody else has changed the thing since; sending again would undo that."""

    hint = "Read the current state and decide anew."


class AmbiguousWriteError(WriteError):
    """Nothing that can be read tells whether the write happened."""

    hint = (
        "Do not send it again blindly: keep .intent and call client.settle(intent) later, or look yourself."
    )
    without_read: ClassVar[str] = (
        "Do not send it again blindly: the specification has no read for it. Look yourself, or keep .intent "
        "and call client.settle(intent, reader=…) with a reader of your own."
    )


class SecretLostError(WriteError):
    """The webhook was created, but the answer with its secret was lost; ``webhook`` is what was found."""

    hint = "The webhook exists: delete it and create it again for a secret, or pass on_lost_secret='keep'."

    @property
    def webhook(self) -> Any:  # Any: a models.Webhook, which this floor may not import
        """The webhook that was found, with ``secret=None``."""
        return self.outcome.value


for _each in tuple(globals().values()):
    if isinstance(_each, type) and issubclass(_each, InvsvcError):
        _each.__module__ = "invsvc_async.errors"  # its public name: in tracebacks and pickles
