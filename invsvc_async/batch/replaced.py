"""
Which webhooks of a store were replaced, because their secrets were lost.

The verdict of the create stays: it made the first webhook.  What is shown of it names the one that stands in
its place.  The journal of a client has both writes of each replacement, under keys made of that of the
create.  A batch or an outbox, which may be elsewhere, notes the replacement as a fact of its own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import attrs

from invsvc_async.durable.entries import JournalEntries
from invsvc_async.durable.records import verdict_and_record
from invsvc_async.durable.store import lists
from invsvc_async.errors import JournalError
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.resources.lost_secrets import (
    first_key_of,
    key_of_deletion,
    key_of_replacement,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from invsvc_async.batch.result import Result
    from invsvc_async.durable.entries import Entries
    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.records import VerdictRecord
    from invsvc_async.reconcile.outcome import Outcome

log: logging.Logger = logging.getLogger("invsvc_async.batch")

# the fact that begins so names a webhook; its value is the id of another one
REPLACED: Final = "replaced "
_MOST: Final = 100  # replacements of one webhook, of which each lost its secret again
_GONE: Final = 404


class ReplacementNotes:
    """
    Notes in *entries* which of their webhooks were replaced, while the client of a batch or outbox knows it.

    The client knows it weakly, so that a batch or outbox that nobody has any more is collected.
    """

    def __init__(self, entries: Entries) -> None:
        self._entries = entries

    async def note(self, key: str, old: str, new: str) -> None:
        """Note that *new* stands in the place of the webhook *old*, if the write *key* made it."""
        try:
            entry = await self._entries.entry(key)
            if entry is None or entry.verdict != Verdict.APPLIED:
                return
            if verdict_and_record(entry)[1].thing == old:
                await self._entries.facts.put(f"{REPLACED}{old}", new)
        except JournalError as error:  # to replace it again notes it, and sends nothing
            words = "%s: %s stands in the place of %s; noting that failed: %s"
            log.warning(words, key, new, old, error)


async def with_replacements(
    entries: Entries, results: Sequence[Result]
) -> list[Result]:
    """Return *results* of *entries*, those of replaced webhooks with the id of what stands in their place."""
    lost = [
        (each.key, each.thing)
        for each in results
        if each.secret_lost and each.thing is not None
    ]
    if not lost:
        return [*results]
    found = await _replacements(entries, lost)
    return [_with_replacement(each, found) for each in results]


def _with_replacement(result: Result, found: Mapping[str, str]) -> Result:
    """Return *result* with the id of the new webhook in the place of its own, if one was *found*."""
    if not result.secret_lost or result.thing is None:
        return result
    if result.thing not in found:
        return result
    return attrs.evolve(result, replaced_by=found[result.thing])


# Any: the operation says what its value is
async def telling_of_replacement(
    entries: Entries,
    key: str,
    outcome: Outcome[Any],
) -> Outcome[Any]:
    """Return the *outcome* of the write of *key*; if its webhook was replaced, its message says so."""
    if not outcome.secret_lost:
        return outcome
    webhook = getattr(outcome.value, "id", None)
    if webhook is None:
        return outcome
    replaced_by = (await _replacements(entries, [(key, webhook)])).get(webhook)
    if replaced_by is None:
        return outcome
    why = (
        f"{outcome.message}; its secret was lost, and {replaced_by} stands in its place"
    )
    return attrs.evolve(outcome, message=why)


async def count_replaced(entries: Entries) -> int:
    """Count the replacements that are noted in *entries*."""
    return len(await entries.facts.beginning(REPLACED))


async def _replacements(
    entries: Entries, lost: Sequence[tuple[str, str]]
) -> Mapping[str, str]:
    """Return the replacements of *lost* webhooks, given as keys and ids, by these ids."""
    if isinstance(entries, JournalEntries):
        found = {old: await _last_in(entries, key, old) for key, old in lost}
        return {old: new for old, new in found.items() if new is not None}
    facts = await entries.facts.of(f"{REPLACED}{old}" for _, old in lost)
    return {name.removeprefix(REPLACED): new for name, new in facts.items()}


async def _last_in(
    journal: JournalEntries,
    key: str,
    webhook: str,
) -> str | None:
    """Return the last webhook in the place of *webhook*, made under *key*, if its secret is not lost."""
    for first in dict.fromkeys((key, first_key_of(key))):
        found = await _end_of_chain(journal, first, webhook)
        if found is not None:
            return found
    return None


async def _end_of_chain(
    journal: JournalEntries,
    first: str,
    webhook: str,
) -> str | None:
    """Return the webhook in the place of *webhook*, made for the create under the key *first*."""
    current = webhook
    for _ in range(_MOST):
        made = await _record_under(journal, key_of_replacement(first, current))
        if made is None:
            return None
        verdict, record = made
        if verdict is not Verdict.APPLIED or record.thing is None:
            return None
        if not await _is_deleted(journal, first, current):
            return None
        current = record.thing
        if record.had != "lost":
            return current
    return None


async def _is_deleted(
    journal: JournalEntries,
    first: str,
    webhook: str,
) -> bool:
    found = await _record_under(journal, key_of_deletion(first, webhook))
    if found is None:
        return False
    verdict, record = found
    if verdict is Verdict.APPLIED:
        return True
    status = record.status or (record.error or {}).get("status")
    return verdict is Verdict.REFUSED and status == _GONE


async def _record_under(
    journal: JournalEntries, key: str
) -> tuple[Verdict, VerdictRecord] | None:
    """Return the verdict under *key*, which has the id of a webhook in it, so that it is in one namespace."""
    for name in await lists.keys_called(journal.store, key):
        entry: Entry | None = await journal.entry(name)
        if entry is not None and entry.verdict is not None:
            return verdict_and_record(entry)
    return None
