"""Decisions about a write, in words: for the log, for ``on_decision`` and for the command line."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar

from invsvc_async.reconcile.attempts import ANSWERED
from invsvc_async.reconcile.history import Done, Read, Send, Wait
from invsvc_async.transport.client_core import ClientCore, DecisionReport

if TYPE_CHECKING:
    from invsvc_async.reconcile.history import Decision
    from invsvc_async.writes.write_run import WriteRun


T = TypeVar("T")

log: logging.Logger = logging.getLogger("invsvc_async.writes")


def hears_all(core: ClientCore) -> bool:
    """Return whether somebody hears of each decision, also of a write that is not in doubt."""
    return core.on_decision is not None or log.isEnabledFor(logging.DEBUG)


def report(run: WriteRun[T], decision: Decision) -> None:
    """Log *decision*, and tell ``on_decision``. One about a write in doubt is always logged, as INFO."""
    core = run.core
    is_in_doubt = decision is not ANSWERED and run.record.known().in_doubt
    if not is_in_doubt and not hears_all(core):
        return
    kind, reason, verdict = words_of(decision)
    operation = run.spec.request.operation.name
    key = run.record.intent.key
    level = logging.DEBUG
    if is_in_doubt:
        level = logging.INFO
    because = ""
    if reason:
        because = f" ({reason})"
    log.log(level, "%s %s: %s%s", operation, key, kind, because)
    if core.on_decision is not None:
        decided = DecisionReport(
            operation=operation,
            key=key,
            decision=kind,
            reason=reason,
            verdict=verdict,
        )
        core.tell(core.on_decision, decided)


def words_of(
    decision: Decision,
) -> tuple[Any, str, str | None]:  # Any: one of DecisionReport's literals
    """Return the kind of a decision, its reason, and the verdict, if there is one."""
    match decision:
        case Done(verdict=verdict, reason=reason):
            return "done", f"{verdict}: {reason}", str(verdict)
        case Send(not_after=None):
            return "send", "", None
        case Send():
            return "send", "again, on proof of absence", None
        case Read(reader=reader, why=why):
            return "read", f"{reader}: {why}", None
        case Wait(seconds):
            return "wait", f"{seconds:.3f} s", None
