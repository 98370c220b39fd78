"""What a person may change of the writes of a batch, an outbox or a journal, and how it is done."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from invsvc_async.cli.console.confirmations import (
    CHANGED,
    Change,
    names_in,
    with_left,
)
from invsvc_async.cli.output import counted
from invsvc_async.cli.store_options import BATCH, JOURNAL, OUTBOX
from invsvc_async.cli.store_views import facts_in_words, facts_of
from invsvc_async.durable.entry import State, is_same_row
from invsvc_async.durable.records import may_be_sent, verdict_and_record
from invsvc_async.durable.resolve import resolution, resolve
from invsvc_async.errors import InvsvcError
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.simulator.loopback_acts import ActRefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from invsvc_async.cli.store_options import StoreKind, StoreOptions
    from invsvc_async.durable.entries import Entries
    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.resolve import Resolution

    Seen = dict[str, Entry]  # by the key that the store has

_AGAIN: Final = {
    BATCH: "The next run of the batch does it.",
    OUTBOX: "Whoever sends the writes of this outbox does it.",
    JOURNAL: "The next run of the same write under its key does it.",
}
BUTTONS: Final = {"retry": "Do again", "resolve": "Resolve", "drop": "Drop"}


class WriteChanges:
    """The changes of the store at *at*, of which *entries* are open for reading."""

    def __init__(self, at: StoreOptions, entries: Entries) -> None:
        self._at = at
        self._kind: StoreKind = at.kind
        self._entries = entries

    async def change(self, asked: Mapping[str, object]) -> Change:
        """Return the change that is asked for, of the writes as they are now."""
        seen = await self._seen(names_in(asked))
        match asked.get("change"):
            case "retry":
                return await self._retry(seen)
            case "drop":
                return await self._drop(seen)
            case "resolve":
                return await self._resolve(seen, asked)
            case other:
                raise ValueError(f"change: there is no {other!r}")

    async def _seen(self, names: Sequence[str]) -> Seen:
        """Return the entries of *names* as they are now."""
        found: Seen = {}
        for name in names:
            entry = await self._entries.entry(name)
            if entry is None:
                raise ActRefusedError(
                    "There is no such write any more. Nothing was done."
                )
            found[name] = entry
        return found

    def _called(self, seen: Seen) -> str:
        """Return what people call the write, or how many there are."""
        if len(seen) > 1:
            return counted(len(seen), "write")
        [entry] = seen.values()
        return self._entries.key_of(entry)

    def _check(self, change: str, seen: Seen) -> None:
        """Raise ActRefusedError if *change* is not for the state of one of the writes."""
        for entry in seen.values():
            if change not in changes_of(self._kind, entry):
                key = self._entries.key_of(entry)
                state = entry.verdict or ("to do", "sending")[entry.state]
                raise ActRefusedError(
                    f"{key}: “{BUTTONS[change]}” is not for a write that is {state}, as this one is. "
                    "Nothing was done."
                )

    async def _asking(
        self,
        seen: Seen,
        title: str,
        will: Sequence[str],
        button: str,
        act: Callable[[Entries, Seen], Awaitable[str]],
    ) -> Change:
        now = {
            self._entries.key_of(entry): [
                *facts_in_words(await facts_of(self._kind, self._entries, entry))
            ]
            for entry in seen.values()
        }
        do = partial(self._done_by, act, seen)
        return Change(
            title=title,
            will=will,
            button=button,
            now=now,
            do=do,
        )

    async def _done_by(
        self, act: Callable[[Entries, Seen], Awaitable[str]], seen: Seen
    ) -> str:
        """Open the store, and run *act* if the writes are still as they were *seen*; return what was done."""
        try:
            async with self._at.opened() as entries:
                for name, before in seen.items():
                    now = await entries.entry(name)
                    if now is None or not is_same_row(now, before):
                        raise ActRefusedError(f"{entries.key_of(before)}: {CHANGED}.")
                return await act(entries, seen)
        except InvsvcError as error:
            raise ActRefusedError(str(error)) from error

    async def _retry(self, seen: Seen) -> Change:
        self._check("retry", seen)
        verdicts = {entry.verdict for entry in seen.values()}
        will = ["It is marked as to be done again. This page sends nothing."]
        if Verdict.UNKNOWN in verdicts:
            will.append(
                "What is unknown is settled by reads first, and sent only on proof that it did not happen."
            )
        if verdicts != {Verdict.UNKNOWN}:
            will.append("It is not sent over a newer write to the same resource.")
        will.append(_AGAIN[self._kind])
        title = f"Do {self._called(seen)} again?"
        return await self._asking(seen, title, will, BUTTONS["retry"], _reopened)

    async def _drop(self, seen: Seen) -> Change:
        self._check("drop", seen)
        will: list[str] = []
        if any(entry.verdict is None for entry in seen.values()):
            will.append("What was not sent yet is deleted, and is not sent then.")
            if self._kind is BATCH:
                will.append(
                    "Take it out of the input of the batch, too: it may add it again."
                )
        if any(entry.verdict is not None for entry in seen.values()):
            will.append(
                "What is finished is deleted, with its verdict: a write under such a key is then a new one."
            )
        if any(entry.verdict == Verdict.UNKNOWN for entry in seen.values()):
            will.append(
                "What is unknown may have happened, and a new write would then be a second one. "
                "Resolve it instead."
            )
        title = f"Delete {self._called(seen)}?"
        return await self._asking(seen, title, will, BUTTONS["drop"], _dropped)

    async def _resolve(self, seen: Seen, asked: Mapping[str, object]) -> Change:
        if len(seen) != 1:
            raise ValueError("names: only one write at a time can be resolved")
        self._check("resolve", seen)
        finding = _finding_in(asked)
        if finding.applied:
            of = f", of {finding.of}" if finding.of else ""
            will = [f"Its verdict becomes: applied{of}. It is never sent again."]
        else:
            will = [
                "Its verdict becomes: not applied.",
                f"It is sent once you {self._kind.resent.replace('`', '')}.",
            ]
        will.append(f"It is noted that {finding.by} found it: {finding.because}")
        will.append("Nothing is read, and nothing is sent.")
        title = f"Resolve {self._called(seen)}?"
        act = partial(_resolved, finding)
        return await self._asking(seen, title, will, BUTTONS["resolve"], act)


# --- what may be changed, and how


def changes_of(kind: StoreKind, entry: Entry) -> list[str]:
    """Return what a person may do with *entry*; the store itself refuses what must not be."""
    if entry.state is not State.DONE:
        if may_be_sent(entry):
            return ["resolve"]
        return ["drop"]
    verdict, record = verdict_and_record(entry)
    found: list[str] = []
    if entry.intent is not None:
        # nothing runs a write of a journal again that has no key
        has_next_run = kind is not JOURNAL or bool(entry.digest)
        if verdict is not Verdict.APPLIED and has_next_run:
            found.append("retry")
        is_final = verdict in {Verdict.APPLIED, Verdict.SUPERSEDED}
        was_sent = record.basis != "never sent"
        if was_sent and not is_final:
            found.append("resolve")
    if kind is not BATCH:
        found.append("drop")
    return found


async def _reopened(entries: Entries, seen: Seen) -> str:
    """Mark those writes as to be done again whose verdict is still as it was seen."""
    verdicts = {str(entry.verdict) for entry in seen.values()}
    marked = await entries.do_again(seen, verdicts=verdicts)
    if not marked:
        raise ActRefusedError(f"{CHANGED}.")
    done = f"{counted(len(marked), 'write')} to be done again."
    return with_left(done, len(seen) - len(marked))


async def _dropped(entries: Entries, seen: Seen) -> str:
    """Delete the writes, each if it is still as it was *seen*."""
    many = 0
    for name, before in seen.items():
        many += await entries.drop(name, seen=before)
    if not many:
        raise ActRefusedError(f"{CHANGED}.")
    return with_left(f"{counted(many, 'write')} dropped.", len(seen) - many)


async def _resolved(
    finding: Resolution,
    entries: Entries,
    seen: Seen,
) -> str:
    """Store a person's finding about the only write in *seen*."""
    [(name, before)] = seen.items()
    key = entries.key_of(before)
    _, outcome = await resolve(entries.store, name, finding, key=key, expected=before)
    return f"{key}: {outcome.verdict}: {outcome.message}"


def _finding_in(asked: Mapping[str, object]) -> Resolution:
    """Return a person's finding, as the page sends it; raise ValueError if it says too little."""
    is_applied = asked.get("applied")
    if not isinstance(is_applied, bool):
        raise ValueError("Say whether it was applied.")  # noqa: TRY004 - of a request
    because = _text_in(asked, "because")
    by = _text_in(asked, "by") or None
    made = _text_in(asked, "of")
    applied: bool | str = is_applied
    if is_applied and made:
        applied = made
    return resolution(applied, because, by)


def _text_in(asked: Mapping[str, object], name: str) -> str:
    """Return the text called *name*; it is empty if the page has sent none."""
    return str(asked.get(name) or "")
