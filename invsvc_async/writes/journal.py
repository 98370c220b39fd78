"""The protocol of journals, which store the intents and verdicts of single writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import AnyOutcome, Outcome


class WriteJournal(Protocol):
    """
    A store for the intent of a single write, and for its verdict until the application has it.

    ``sending`` is called before every send, then ``settled``, then ``heard``; or ``shelved`` if the write was
    cancelled.
    """

    async def sending(self, intent: Intent) -> float | None:
        """
        Store *intent* durably before the first byte of a send, in place of earlier revisions.

        Return until when it may be sent (local s), because another process may take it over then, or None.
        """
        ...

    def shelved(self, intent: Intent, *, sent: bool) -> None:
        """
        Note how far a cancelled write got, without waiting and without raising.

        If it is not *sent*, provably no byte of it was sent, or another journal has it now: remove it. A
        verdict that is stored already stays. Ignore one for which ``sending`` was never called.
        """
        ...

    async def settled(self, outcome: Outcome[object]) -> None:
        """
        Store the verdict durably before the application gets it. A write that is UNKNOWN stays open; ignore
        one for which ``sending`` was never called.

        Does not raise if it cannot be stored: the application gets the verdict all the same, and the write
        stays open here.
        """
        ...

    def heard(self, identity: str) -> None:
        """
        Note that the application has the verdict of *identity*: the journal may delete it.

        Neither waits nor raises. Unknown or open identities, and calls after the close, are ignored.
        """
        ...


class Journal(WriteJournal, Protocol):
    """A durable store of the intents and verdicts of single writes."""

    async def open(self) -> None:
        """Open it. Raises JournalError, with the owner's name, if another process has it."""
        ...

    def open_intents(self) -> AsyncIterator[Intent]:
        """Iterate over the intents without a verdict that an earlier process stored."""
        ...

    def unheard(self) -> AsyncIterator[AnyOutcome]:
        """
        Iterate over the verdicts of an earlier process that no application has had.

        The outcomes are rebuilt from what was stored, without history and without a webhook's secret.
        """
        ...

    async def aclose(self) -> None:
        """Store everything that is pending, and close it."""
        ...


class KeyOrder(Protocol):
    """The place of a write without a key among the keyed runs of this process for the same *thing*."""

    thing: str

    async def until_keys_ended(self) -> None:
        """Wait until the keyed runs that have started before have ended."""
        ...

    def end(self) -> None:
        """Note that the write has ended: later runs claim their keys. Further calls do nothing."""
        ...


def keys_of(journal: object) -> Any:  # Any: Keys, which is above this folder, or None
    """
    Return the keys of *journal* if it is of this package: elsewhere, ``keys`` means something else.

    It may be the method of a mapping, for example. ``Keys`` is recognised by a method of its own, because
    this folder must not import the class.
    """
    keys = getattr(journal, "keys", None)
    if hasattr(keys, "settle_left"):
        return keys
    return None
