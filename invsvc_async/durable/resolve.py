"""
What a person has found out about a write, stored as its verdict.

Some writes end UNKNOWN because the service has no read that shows them, or because it is too late for one.
A person looks, in the dashboard for example, and says what happened.  That is evidence of its own kind: the
verdict has the basis ``"person"``, with who, when and why.

=========================  ================================================================================
the entry                  what the finding of a person does
=========================  ================================================================================
UNKNOWN                    becomes its verdict
open, may have been sent   the same, unless a living process has it: that one finds out; or one that was
                           just taken for dead may still send it
NOT_APPLIED, REFUSED       becomes APPLIED, if the person found an effect; not if nothing was ever sent
APPLIED, SUPERSEDED        nothing: these are final
open, never sent           nothing: there is nothing to find out
=========================  ================================================================================

It is stored in one transaction, under the locks of a take-over (``store/findings``).  Nothing is read and
nothing is sent.
"""

from __future__ import annotations

import getpass
import socket
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import attrs
from msgspec.structs import replace

from invsvc_async import codec, models
from invsvc_async.api.operations import BY_NAME
from invsvc_async.durable.entry import State, is_same_row
from invsvc_async.durable.key_names import key_in
from invsvc_async.durable.records import (
    VerdictRecord,
    encoded,
    flags_of,
    intent_of,
    may_be_sent,
    record_of,
    verdict_and_record,
    verdict_record,
)
from invsvc_async.durable.store.conditions import FREED
from invsvc_async.durable.store.findings import (
    changed_meanwhile,
    entry_of,
    store_finding,
)
from invsvc_async.durable.store.restored import marked
from invsvc_async.errors import InvalidRequestError, JournalError
from invsvc_async.models.common import Model
from invsvc_async.reconcile.compare import names_another
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.reconcile.findings import is_unique
from invsvc_async.reconcile.history import Evidence, PersonFinding
from invsvc_async.reconcile.json_form import error_of
from invsvc_async.reconcile.kinds import kind_of_write
from invsvc_async.reconcile.outcome import OutcomeBase

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.api.operations import Operation
    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.reconcile.history import Cause, Secret
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import AnyOutcome
    from invsvc_async.transport.client_core import ClientCore


CheckEntry: TypeAlias = "Callable[[Entry], Awaitable[None]]"

_FINAL: Final = (Verdict.APPLIED, Verdict.SUPERSEDED)
_LONGEST_WHY: Final = 1000  # characters
_LONGEST_NAME: Final = 200  # characters of an id, or of who it was


@attrs.frozen(kw_only=True)
class Resolution:
    """A person's finding: whether a write was applied, *of* what if that is known, by whom, and why."""

    applied: bool
    of: str | Model | WireObject | None = None
    because: str
    by: str


class Resolved(NamedTuple):
    """An entry with its verdict, and the outcome."""

    entry: Entry
    outcome: AnyOutcome


def resolution(
    applied: object,
    because: str,
    by: str | None,
) -> Resolution:
    """
    Check a person's finding, and return it.  *by* is by default the user who runs this process.

    Raises:
        InvalidRequestError: The arguments do not say what was found, or why.
    """
    problems: list[str] = []
    if isinstance(applied, str) and not _is_line(applied, _LONGEST_NAME):
        problems.append(
            f"applied: an id must have 1 to {_LONGEST_NAME} printable characters"
        )
    elif not isinstance(applied, (bool, str, Model, dict)):
        kind = type(applied).__name__
        problems.append(
            f"applied: must be True, False, an id, or what was made or changed, not {kind}"
        )
    if not _is_line(because, _LONGEST_WHY):
        problems.append(
            f"because: must say in 1 to {_LONGEST_WHY} printable characters how you know"
        )
    if by is None:
        by = _whoever_runs_this()
    elif not _is_line(by, _LONGEST_NAME):
        problems.append(f"by: must have 1 to {_LONGEST_NAME} printable characters")
    if problems:
        raise InvalidRequestError(problems, hint="Nothing was stored.")
    if not isinstance(applied, bool):
        of = cast("str | Model | WireObject", applied)
    else:
        of = None
    return Resolution(
        applied=applied is not False,
        of=of,
        because=because,
        by=by,
    )


def _is_line(text: object, longest: int) -> bool:
    if not isinstance(text, str):
        return False
    if not text.strip() or len(text) > longest:
        return False
    return text.isprintable()


def _whoever_runs_this() -> str:
    """Return the login and the host of this process."""
    try:
        login = getpass.getuser()
    except (KeyError, OSError):  # such as in a container without users
        login = "unknown"
    return f"{login}@{socket.gethostname()}"


async def resolve(
    store: Store,
    name: str,
    finding: Resolution,
    *,
    key: str | None = None,
    identity: str | None = None,
    mine: str | None = None,
    expected: Entry | None = None,
    check: CheckEntry | None = None,
    made: dict[str, Resolved] | None = None,
) -> Resolved:
    """
    Store *finding* as the verdict of the entry *name*, which people call *key*.

    With *identity*, only if it is that write, and with *expected*, only if the entry is still that one.
    *mine* is the token of a lane of this process, in which no run has the write.  *check* raises if the entry
    is none that the caller may resolve, before anything is said about it.  *made* gets what may be stored; if
    an error was raised, too.

    Raises:
        InvalidRequestError: What was found is no result of such a write, or another thing than it changes.
        JournalError: There is no such write, a living process has it, one that was just taken for dead may
            still send it, it has a final verdict, nothing of it was sent, or somebody changed it at the same
            time; or the store may lack sends, because it is in another place than before (``PlaceError``).
            Nothing was stored.
    """
    if key is None:
        key = name
    called = f"resolve: the write under the key {key!r}"
    async with store.in_place():
        seen = await _seen_open(store, name, finding, called, expected, check)
        bare = seen
        is_keyed = store.how.kind == "journal" and seen.digest != ""
        if is_keyed:
            bare = replace(seen, key=key_in(seen.key))
        intent = intent_of(bare, store.commons)
        if identity is not None and intent.identity != identity:
            raise JournalError(
                f"{called} is another one than that of the intent. Nothing was stored.",
                is_conflict=True,
            )
        value = _value_of(intent, finding)
        before = (
            VerdictRecord() if seen.verdict is None else verdict_and_record(seen)[1]
        )
        # by the texts that are stored: a try may be made again
        tries: dict[str, Resolved] = {} if made is None else made

        def make(at: int) -> Entry:
            outcome = _outcome(intent, finding, value, before, at)
            entry = _entry(store.how.kind, seen, outcome, at)
            tries[str(entry.outcome)] = Resolved(entry, outcome)
            return entry

        text = await store_finding(
            store, seen, make, tries.keys(), mine=mine, called=called
        )
    return tries[text]


def note(core: ClientCore, resolved: Resolved) -> None:
    """Note in the client of *core* that a write has a verdict, and forget the state of a thing it changed."""
    core.writes.forget(resolved.outcome.started_as.identity)
    if resolved.outcome.applied and resolved.entry.thing is not None:
        core.writes.forget_state(resolved.entry.thing)


# --- what may be resolved


async def _seen_open(
    store: Store,
    name: str,
    finding: Resolution,
    called: str,
    expected: Entry | None,
    check: CheckEntry | None,
) -> Entry:
    """
    Return the entry *name*, about which something is to be found out; errors call its write *called*.

    Raises:
        JournalError: There is none, it is not the *expected* one any more, or nothing is to be found out;
            or as *check*.
    """
    await store.idle()  # what this process stores of it
    seen = await entry_of(store, name)
    if seen is None:
        raise JournalError(
            f"{called} is not there. Check the key, and that this is its journal.",
            is_missing=True,
        )
    if expected is not None and not is_same_row(seen, expected):
        raise changed_meanwhile(called)
    if check is not None:
        await check(seen)
    is_of_copy = seen.seq <= (await store.run(marked)).through
    _check_open(seen, finding, called, is_of_copy=is_of_copy)
    return seen


def _check_open(
    entry: Entry,
    finding: Resolution,
    called: str,
    *,
    is_of_copy: bool,
) -> None:
    """Raise JournalError if nothing is to be found out about the write of *entry*."""
    if entry.state is not State.DONE:
        if not (is_of_copy or may_be_sent(entry)):
            raise _never_sent(called)
        return
    verdict, record = verdict_and_record(entry)
    if verdict in _FINAL:
        raise JournalError(
            f"{called} has the verdict {verdict}, which is final. Nothing was stored.",
            is_conflict=True,
        )
    if entry.intent is None:
        raise JournalError(
            f"{called} was pruned, so there is nothing to resolve. Nothing was stored.",
            is_conflict=True,
        )
    if verdict is Verdict.UNKNOWN:
        return
    if not finding.applied:
        raise JournalError(
            f"{called} has the verdict {verdict} already: it did not happen, and may be done again.",
            is_conflict=True,
        )
    if record.basis == "never sent":
        raise _never_sent(called)


def _never_sent(called: str) -> JournalError:
    return JournalError(
        f"{called} was never sent, so there is nothing to find out. Run it, or delete it. Nothing was "
        "stored.",
        is_conflict=True,
    )


def is_being_done(key: str) -> JournalError:
    """Return the error for a write of which this process has a run."""
    return JournalError(
        f"resolve: the write under the key {key!r} is being done by this process. Wait for its verdict. "
        "Nothing was stored.",
        is_conflict=True,
    )


# --- the verdict


def _value_of(intent: Intent, finding: Resolution) -> Any:  # Any: as the operation
    """
    Return the value of the write of *intent*, if it was applied; ``None`` if no more is known.

    Of an id alone, it is an object that has that id, and no other field.

    Raises:
        InvalidRequestError: It is another thing than the write changes, or of another kind.
    """
    if not finding.applied:
        return None
    operation = BY_NAME[intent.operation]
    of = finding.of
    if of is None or isinstance(of, str):
        is_new = kind_of_write(operation).creates
        known = _known_id(intent, of, is_new=is_new)
        if not is_new and names_another(known, intent.path):
            raise _other_thing(intent, known)
        if known is None:
            return None
        return _of_id(operation, known)
    if operation.result == "object":
        if isinstance(of, Model):
            return codec.unstructure(of)
        return of
    wanted: type[Model] = getattr(models, operation.result)
    if not isinstance(of, wanted):
        raise InvalidRequestError(
            f"applied: {intent.operation} gives {operation.result}, not {type(of).__name__}",
            hint="Pass an id, such an object, or True. Nothing was stored.",
        )
    if names_another(getattr(of, "id", None), intent.path):
        raise _other_thing(intent, getattr(of, "id", None))
    return of


def _known_id(
    intent: Intent,
    found: str | None,
    *,
    is_new: bool,
) -> str | None:
    """Return the id *found*, or else the id in the path of the write, if its thing is not new."""
    if found:
        return found
    if is_new:
        return None
    return intent.path.get("id")


def _other_thing(intent: Intent, named: object) -> InvalidRequestError:
    return InvalidRequestError(
        f"applied: {named!r:.100} is another thing than the write changes, {intent.path.get('id')!r}",
        hint="Check the key. Nothing was stored.",
    )


def _of_id(operation: Operation, named: str) -> Any:  # Any: as the operation
    if operation.result == "object":
        return {"id": named}
    model: type[Model] = getattr(models, operation.result)
    if "id" in attrs.fields_dict(model):
        return codec.structure(model, {"id": named})
    return None


def _outcome(
    intent: Intent,
    finding: Resolution,
    value: Any,
    before: VerdictRecord,
    at: int,
) -> AnyOutcome:
    """Return the outcome of *finding*, with what the record *before* has counted."""
    cause: Cause | None
    if finding.applied:
        verdict = Verdict.APPLIED
        words = "it was applied"
        cause = None
    else:
        verdict = Verdict.NOT_APPLIED
        words = "it was not applied"
        cause = "person"
    secret: Secret | None = None
    if finding.applied and kind_of_write(BY_NAME[intent.operation]).has_secret:
        secret = "lost"
        if getattr(value, "secret", None) is not None:  # the person has it
            value = attrs.evolve(value, secret=None)
            secret = "not stored"
    outcome: OutcomeBase[Any] = OutcomeBase(
        verdict=verdict,
        message=f"{finding.by} found that {words}: {finding.because}",
        evidence=Evidence(
            basis="person",
            cause=cause,
            person=PersonFinding(
                by=finding.by,
                at=at,
                because=finding.because,
            ),
        ),
        value=value,
        error=error_of(before.error),
        attempts=before.tries if before.basis else len(intent.sent),
        resends=before.again,
        secret=secret,
        started_as=intent,
        livemode=before.livemode,
    )
    return cast("AnyOutcome", outcome)


def _entry(
    kind: str,
    seen: Entry,
    outcome: AnyOutcome,
    at: int,
) -> Entry:
    """Return the entry *seen* with *outcome*, in the form of a store of this *kind*."""
    record = record_of(outcome)
    flags = flags_of(record)
    # The database's clock may be behind what the service's answers have shown of the write.  No two verdicts
    # of an entry have the same time (``VerdictAt``).
    done_at = max(at, (seen.done_at or 0) + 1)
    entry = replace(
        seen,
        state=State.DONE,
        verdict=outcome.verdict.value,
        flags=flags,
        done_at=done_at,
    )
    if kind == "journal":
        entry.outcome = verdict_record(outcome, record)
        # it waits for the application, as all verdicts that have no key
        if seen.digest == "":
            entry.done_at = None
        else:  # no process may take it for one that it has applied itself, after it has waited for others
            entry.lane = FREED
        return entry
    is_found = outcome.applied and record.thing is not None
    if (
        is_found
        and kind_of_write(BY_NAME[seen.operation]).creates
        and not is_unique(outcome.started_as.tag)
    ):
        entry.claim = record.thing
    if kind == "outbox":
        entry.outcome = verdict_record(outcome, record)
        return entry
    entry.outcome = encoded(record)
    if outcome.applied:  # as of all that are applied
        entry.common = entry.intent = None
    return entry
