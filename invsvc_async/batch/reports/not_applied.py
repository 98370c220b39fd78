"""Writes that are not applied: grouped by cause with advice, and as lines of input."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

import attrs

from invsvc_async.batch.entries import UNNAMED, pages_of, result_of, results_in
from invsvc_async.batch.result import Result
from invsvc_async.durable.records import intent_of
from invsvc_async.durable.store.lists import notes_of
from invsvc_async.durable.store.states import last_writes
from invsvc_async.errors import JournalError
from invsvc_async.reconcile.history import Verdict
from invsvc_async.reconcile.outcome import LIST_FULL
from invsvc_async.writes.as_data import arguments_of
from invsvc_async.writes.noted import NOTED_NAMES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence, Set as AbstractSet

    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.durable.entries import Entries
    from invsvc_async.durable.entry import Entry


LOST_SECRETS = (
    "No verdict with the secret was stored. If a process was killed just after the answer, or the journal is "
    "a restored copy, on_secret or the file of --secrets-to has had it: look there first. Otherwise replace "
    "the webhook: the command makes another one in its place, and deletes it. It can be repeated."
)
NO_ID = "its id is not known"
REPLACED = (
    "Their secrets were lost; each was deleted once another webhook stood in its place."
)
SECOND_EFFECTS = "These webhooks were made by the same writes as others. Delete those that nobody needs."
SHOWN = 200  # writes of one group that a report lists
_MOST_GROUPS = 100  # more, of codes that only the service knows, are one group
_NOT_APPLIED_INSTEAD = (
    " Of what did not happen, give --not-applied instead of --applied ID."
)
_KEYS_NAMED = 5  # in a command, at most
NOT_APPLIED = (
    Verdict.REFUSED,
    Verdict.NOT_APPLIED,
    Verdict.SUPERSEDED,
    Verdict.UNKNOWN,
)  # as reported

_REFUSED = {
    401: "The team's plan lacks the feature, or the credential is not valid. Change that, then retry.",
    403: "The credential or the plan may not do this. Change that, then retry.",
    404: "It does not exist in this team and mode. Correct the id, and write again.",
    409: "It conflicts with the state of the resource. Look at that, then retry or correct the write.",
    429: "The service limits requests. Retry with a lower rate.",
}
_CORRECT = "Correct the requests, and write again."
_ADVICE = {
    "never left": "The service could not be reached. Retry once it can be.",
    "not sent again": "It had no effect, and then the service could not be reached. Retry once it can be.",
    "absent": "An error or no answer came, and a read showed that nothing happened. Retry.",
    "overtaken": "Newer writes to the same resources were sent. Leave these, or send them over those with "
    "retry --force.",
    "perhaps overtaken": "A newer write may have been sent. Compare the state, then retry or leave it.",
    "only read": "It was settled without being sent. Retry to send it.",
    "client closed": "The run ended first. Retry, which reads before it sends what may have been sent.",
    "changed since": "Somebody else changed the resource. Compare its state with the request; if yours is to "
    "win, retry.",
    "no read": "The specification has no read for this: check the dashboard, then resolve each with what you "
    "find.",
    "read refused": "The credential may not read the state: use one that may, then retry, which reads first.",
    "out of time": "The state could not be read in time: retry, which reads first.",
    "may be published": "Compare the draft with the request in the dashboard, then resolve each with what "
    "you find.",
    "not visible": "No read shows these writes: look at the resource, then resolve each with what you find.",
    "no baseline": "Compare the state with the request, then resolve each with what you find.",
    "other words": "The service may have stored it in its own words. Compare the state, then "
    "resolve each with what you find.",
    "in part": "Only a part was stored. Retry: that sends it again if nothing has changed since.",
    "gone": "The resource no longer exists. Leave it, or make a new one.",
    "candidates": "Compare the candidates with the request, then resolve each with the id that is its own, "
    "or as not applied. Delete surplus ones.",
    "list full": LIST_FULL,
    "too long ago": "It is too late for absence to prove anything: check the state, then resolve each with "
    "what you find.",
    "person": "A person found that it did not happen. Retry to send it.",
    "perhaps undone": "The resource is as it was before the write, as after a restore of the journal. Unless "
    "somebody has undone these since, retry: that sends them.",
    "reader": "The user-supplied reader is needed, or could not tell: run it again with the reader.",
}
_OTHERWISE = {
    Verdict.NOT_APPLIED: "It provably did not happen. Retry.",
    Verdict.SUPERSEDED: "Compare the state with the request; if yours is to win, retry.",
    Verdict.UNKNOWN: "Check the state, then resolve each with what you find, or retry, which reads first.",
}


@attrs.define(kw_only=True)
class Group:
    """
    The writes that have the same verdict for the same cause; ``results`` has the first few.

    ``command`` does what the advice says; ``None`` if there is none.
    """

    verdict: Verdict
    cause: str
    advice: str
    command: str | None = None
    count: int = 0
    results: list[Result] = attrs.field(factory=list[Result])

    def plain(self) -> WireObject:
        """Return it as JSON values, with the first of its writes."""
        named = attrs.asdict(
            self, recurse=False, filter=lambda field, _: field.name != "results"
        )
        return {**named, "writes": [*map(plain_result, self.results)]}


class Groups:
    """The groups of the results that were added."""

    def __init__(self) -> None:
        self._groups: dict[tuple[Verdict, str], Group] = {}

    async def add_page(self, entries: Entries, page: Sequence[Entry]) -> list[Result]:
        """Count the results of *page*, entries that are done, in their groups; return them."""
        overtaken = await _overtaken_in(entries, page)
        results = await results_in(entries, page)
        for entry, result in zip(page, results, strict=True):
            self.add(result, is_overtaken=entry.seq in overtaken)
        return results

    def add(self, result: Result, *, is_overtaken: bool = False) -> None:
        """
        Count *result* in its group, unless it is applied.

        If it *is_overtaken* by a newer write to the same resource, to retry it would not send it.
        """
        if result.verdict is Verdict.APPLIED:
            return
        cause = _cause_in(result) or "not recorded"
        advice = _advice_for(result, cause)
        if is_overtaken and cause != "overtaken":
            cause = f"{cause}, then overtaken"
            advice = _ADVICE["overtaken"]
        if (result.verdict, cause) not in self._groups and len(
            self._groups
        ) >= _MOST_GROUPS:
            cause = "other"
            advice = _OTHERWISE.get(result.verdict, _CORRECT)
        new = Group(
            verdict=result.verdict,
            cause=cause,
            advice=advice,
        )
        group = self._groups.setdefault((result.verdict, cause), new)
        group.count += 1
        if len(group.results) < SHOWN:
            group.results.append(result)

    def sorted(
        self,
        place: str,
        kind: str = "batch",
        profile: str | None = None,
    ) -> list[Group]:
        """
        Return the groups by verdict, the largest of each first, each with its command.

        *place* is the name of the store, without a password; *kind* is the command that it is for, which is
        given this *profile*.
        """
        where = where_for(kind, place, profile)
        found = sorted(
            self._groups.values(),
            key=lambda each: (NOT_APPLIED.index(each.verdict), -each.count),
        )
        for group in found:
            if kind == "journal":  # its writes are run by the application
                group.advice = group.advice.replace(
                    "with retry --force", "under new keys"
                )
            group.command = command_for(group, found, where, kind)
            if "resolve each" in group.advice:
                group.advice += _NOT_APPLIED_INSTEAD
        return found


def _cause_in(result: Result) -> str | None:
    """Return why a write is not applied, in the few words that name its group."""
    if result.verdict is not Verdict.REFUSED:
        return result.cause
    if result.status:
        return f"HTTP {result.status} {result.code or ''}".strip()
    return result.code


def _advice_for(result: Result, cause: str) -> str:
    """Return what to do about a write that is not applied because of *cause*."""
    if advice := _ADVICE.get(cause):
        return advice
    if advice := _OTHERWISE.get(result.verdict):
        return advice
    return _REFUSED.get(result.status or 0, _CORRECT)


def words_of(result: Result) -> str:
    """Return why a write is not applied: the words of the service's refusal, or else the reason."""
    if result.verdict is Verdict.REFUSED and result.error:
        words = result.error
    else:
        words = result.message
    return words.removesuffix(".")


def replacement(result: Result) -> str:
    """Return which webhook stands in the place of that of *result*."""
    return f"{result.thing}, now {result.replaced_by}"


def plain_result(result: Result) -> WireObject:
    """Return what is known of a result as JSON values."""
    fields = attrs.asdict(result, recurse=False) | {
        "outcome": None,
        "secret_lost": result.secret_lost,
    }
    return {name: value for name, value in fields.items() if value not in (None, ())}


async def groups_of(entries: Entries, place: str) -> list[Group]:
    """Return the groups of *entries*, which are at *place*. Applied entries are not read."""
    groups = Groups()
    for verdict in NOT_APPLIED:
        async for page in pages_of(entries, verdict):
            await groups.add_page(entries, page)
    return groups.sorted(place)


async def _overtaken_in(entries: Entries, page: Sequence[Entry]) -> set[int]:
    """
    Return the numbers of entries in *page* that would not be sent again, because a newer write was.

    Not those that are UNKNOWN: to retry them finds out what became of them.
    """
    settled = (Verdict.NOT_APPLIED, Verdict.REFUSED, Verdict.SUPERSEDED)
    placed = [
        (entry, entry.thing)
        for entry in page
        if entry.verdict in settled and entry.thing is not None
    ]
    last = await _last_places(entries, {thing for _, thing in placed})
    return {entry.seq for entry, thing in placed if last.get(thing, 0) > entry.place}


def where_of(place: str, profile: str | None = None) -> str:
    """Return the arguments of a command for the store at *place*, found with *profile*."""
    # what begins so would be an option
    path = f"./{place}" if place.startswith("-") else place
    words = "PLACE" if place == UNNAMED else quote(path)
    if profile is None:
        return words
    return f"{words} --profile {quote(profile)}"


def where_for(kind: str, place: str, profile: str | None) -> str:
    """Return the same for a command of this *kind*: a command for a batch is given no *profile*."""
    if kind == "batch":
        return where_of(place)
    return where_of(place, profile)


def command_for(
    group: Group,
    groups: list[Group],
    where: str,
    kind: str,
) -> str | None:
    """
    Return the command for the advice of *group*; *where* is the command's arguments for the store.

    It chooses no writes of other *groups* that it could harm: those that are sent over newer writes, or over
    the changes of others, are named by key.
    """
    advice = group.advice.lower()
    by_key = kind == "journal"
    # what was found has to be added, and is asked for otherwise
    if "resolve each" in advice:
        key = _named(group.results[0].key) if group.count == 1 else "KEY"
        return f"invsvc {kind} resolve {where} --because TEXT --applied ID {key}"
    if "retry" in advice:
        force = " --force" if "--force" in advice else ""
        return _retry_of(
            group, groups, f"invsvc {kind} retry {where}{force}", by_key=by_key
        )
    if "correct the" in advice and not by_key:
        return f"invsvc {kind} report {where} --failed out.jsonl"
    return None


def _retry_of(
    group: Group,
    groups: list[Group],
    retry: str,
    *,
    by_key: bool,
) -> str | None:
    """Return the command *retry* for *group*, by verdict if it cannot harm other groups, or else *by_key*."""
    is_alone = all(
        each is group or each.verdict is not group.verdict for each in groups
    )
    is_harmless = "--force" not in retry and group.verdict is not Verdict.SUPERSEDED
    if not by_key and (is_alone or is_harmless):
        return f"{retry} --verdict {str(group.verdict).replace(' ', '-')}"
    if group.count > _KEYS_NAMED:
        return None
    return f"{retry} {_named(*(each.key for each in group.results))}"


def command_for_lost(
    keys: Sequence[str],
    count: int,
    where: str,
    kind: str,
) -> str:
    """Return the command that replaces *count* webhooks with lost secrets; *keys* are the first of them."""
    which = _named(*keys) if count <= _KEYS_NAMED else "--all"
    journal = "" if kind == "journal" else " --journal ADDRESS"
    command = f"invsvc {kind} replace-lost {where} --secrets-to FILE{journal}"
    return f"{command} {which}"


def _named(*keys: str) -> str:
    """Return *keys* as arguments of a command."""
    words = [quote(key) for key in keys]
    if any(each.startswith("-") for each in words):
        words.insert(0, "--")
    return " ".join(words)


async def failed_writes(
    entries: Entries,
) -> AsyncIterator[tuple[str, WireObject | None, str]]:
    """
    Iterate over the writes that are not applied, in the order of the input.

    Each has its key, its line of input (``None`` if its arguments are gone or of another version), and what
    that lacks. Its member ``check`` is what a person has to find out before it may be sent: with that, it is
    not valid input.
    """
    async for page in pages_of(entries):
        failed = [entry for entry in page if entry.verdict != Verdict.APPLIED]
        last = await _last_places(entries, {entry.thing for entry in failed})
        notes = await notes_of(entries.store, [entry.seq for entry in failed])
        for entry in failed:
            if entry.seq in notes:  # unless it was deleted meanwhile
                entry.noted = notes[entry.seq].noted
            is_overtaken = last.get(entry.thing, 0) > entry.place
            line, lacks = _line_of(entries, entry, is_overtaken=is_overtaken)
            yield entry.key, line, lacks


async def _last_places(
    entries: Entries, things: AbstractSet[str | None]
) -> Mapping[str | None, int]:
    """Return the place of the last write that is done, for each of *things* but ``None``."""
    names = sorted(thing for thing in things if thing is not None)
    if names:
        return {
            each.thing: each.place for each in await last_writes(entries.store, names)
        }
    return {}


def _line_of(
    entries: Entries,
    entry: Entry,
    *,
    is_overtaken: bool,
) -> tuple[WireObject | None, str]:
    """Return the line of input for *entry*, ``None`` if there is none, and what it lacks."""
    try:
        intent = intent_of(entry, entries.store.commons)
    except JournalError:
        if entry.intent is None:
            why = "were pruned"
        else:
            why = "cannot be read by this version"
        return None, f"its arguments {why}"
    line = {
        "operation": intent.operation,
        "arguments": arguments_of(intent),
        "key": entry.key,
    }
    check = _check_of(result_of(entries, entry), is_overtaken=is_overtaken)
    if check is not None:
        line["check"] = check
    lacks: list[str] = []
    if intent.reader is not None:
        lacks.append(f"its reader {intent.reader}")
    if intent.headers:
        lacks.append("the headers of its call")
    lacks += [
        f"its {name}" for name in NOTED_NAMES if getattr(entry.noted, name) is not None
    ]
    if not lacks:
        return line, ""
    return line, f"the file lacks {' and '.join(lacks)}"


def _check_of(result: Result, *, is_overtaken: bool) -> str | None:
    """Return the question to answer before a journal that does not know the write may send it."""
    if result.verdict is Verdict.UNKNOWN:
        return f"It may be applied already ({result.message}). Delete this member only if it is not."
    if result.verdict is Verdict.SUPERSEDED:
        return (
            f"{result.message}. Delete this member only if that is to be overwritten."
        )
    if is_overtaken or result.overtaken:
        return "A newer write to the same resource was sent. Delete this member only to overwrite it."
    return None
