"""
Put the questions in their order and gather the answers; never print, never change a setting.
"""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import TYPE_CHECKING

import attrs

from invsvc_async.api.operations import WEBHOOKS_HEALTH
from invsvc_async.doctor.parameter_names import IMPORTS, Named, find_names
from invsvc_async.doctor.probe import Answer, Ask, Asker
from invsvc_async.transport.session import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.client import Client
    from invsvc_async.transport.session import ClientOptions

__all__ = ["Checkup", "Finding", "examine"]

_NO_JOURNEY = "invsvc-doctor-none"
_KINDS = {
    "api_key": "an API key", "oauth_token": "an OAuth access token", "person_token": "a person's token",
}  # fmt: skip


@attrs.frozen(kw_only=True)
class Finding:
    """One question and its answer; ``good`` is ``None`` where it could not be told."""

    question: str
    answer: str
    good: bool | None


_NO_IMPORTS = Finding(
    question="parameters of the table-database listing",
    answer="it cannot be read: that takes a person's token, with authority in the team",
    good=None,
)


@attrs.frozen(kw_only=True)
class Checkup:
    """
    All that was found.

    ``journey_reads`` is ``None`` where it could not be told whether a journey can be read.
    """

    findings: list[Finding]
    names: list[Named]
    journey_reads: bool | None
    reads: int

    @property
    def usable(self) -> bool:
        """Whether the deployment answers this credential."""
        return not any(finding.good is False for finding in self.findings[:2])


async def examine(
    client: Client, *, journey: str | None = None, wall: Callable[[], float] = time.time
) -> Checkup:
    """
    Ask what *client* reaches, with at most some sixty reads, one after another; raises nothing of theirs.

    *journey* is the id of one that exists: with it, the read of a journey can be told for certain.  *wall*
    gives this machine's time of day, s since the epoch.

    Spec: Endpoints; Authentication.
    """
    asker = Asker(client._view)  # noqa: SLF001 - a room of the same house
    health = await asker.read(Request(operation=WEBHOOKS_HEALTH))
    findings = [_reached(health)]
    if health.status is None:
        return Checkup(findings=findings, names=[], journey_reads=None, reads=0)
    list_ = await asker.invoices({})
    findings.append(_accepted(list_))
    imports = await _imports(asker, list_)
    findings += await _of_credential(asker, list_, is_person=imports is not None)
    names = await find_names(asker.invoices) if list_.status == 200 else []
    names += await find_names(imports, IMPORTS) if imports else []
    there, finding = await _journey(asker, journey)
    findings += [finding, _clock(asker.view, wall), _speed(asker)]
    return Checkup(findings=findings, names=names, journey_reads=there, reads=len(asker.seconds))


def _reached(health: Answer) -> Finding:
    question = "the base URL answers"
    if health.status is None:
        return Finding(question=question, answer=health.error, good=False)
    if health.status == 200:
        return Finding(question=question, answer="yes: the health probe says ok", good=True)
    # something is there; the reads below tell whether it is the service
    return Finding(question=question, answer=f"HTTP {health.status} {health.error}", good=None)


def _accepted(answer: Answer) -> Finding:
    question = "the credential is accepted"
    if answer.status == 200:
        return Finding(question=question, answer="yes", good=True)
    by = "" if answer.own else " (not in the service's own envelope)"
    said = f"HTTP {answer.status} {answer.error}{by}" if answer.status else answer.error
    return Finding(question=question, answer=said, good=False)


async def _imports(asker: Asker, list_: Answer) -> Ask | None:
    """Give the listing of the table-database provider, if this credential may read it: only a person may."""
    team = asker.view.team or list_.item("team")
    ask = partial(asker.path, f"/teams/{team}/integrations/dbtable/webhooks")
    return ask if isinstance(team, str) and (await ask()).status == 200 else None


async def _of_credential(asker: Asker, list_: Answer, *, is_person: bool) -> list[Finding]:
    """Tell kind and mode: the kind is the caller's word, checked by its form and by what it may read."""
    credential = asker.view.session.credential
    token = (await credential.header()).removeprefix("Bearer ")
    form = "in the form of a JWT" if token.count(".") == 2 else "not in the form of a JWT"
    answer, good = f"given as {_KINDS[credential.kind]}, {form}", True
    if credential.kind == "api_key" and token.count(".") != 2:
        answer, good = f"{answer}, which every API key has: perhaps INVSVC_OAUTH_TOKEN", False
    if is_person and credential.kind != "person_token":
        answer, good = f"{answer}; reads what only a person may: INVSVC_PERSON_TOKEN", False
    mode = list_.item("livemode")
    shown = {True: "live", False: "test"}.get(mode, "no invoice shows it")
    return [
        Finding(question="kind of credential", answer=answer, good=good),
        Finding(question="data mode", answer=shown, good=None if mode is None else True),
        *([] if is_person else [_NO_IMPORTS]),
    ]


async def _journey(asker: Asker, journey: str | None) -> tuple[bool | None, Finding]:
    """Tell whether ``GET /journeys/{id}``, which is not in the list of operations, is there."""
    question = "GET /journeys/{id}"
    answer = await asker.path(f"/journeys/{journey or _NO_JOURNEY}")
    if journey is not None or answer.status in (405, 501):
        there = answer.status == 200
        told = "is there" if there else f"HTTP {answer.status} {answer.error}"
        return there, Finding(question=question, answer=told, good=there)
    nowhere = await asker.path(f"/{_NO_JOURNEY}/{_NO_JOURNEY}")
    if answer.status == 404 and (answer.own, answer.error) != (nowhere.own, nowhere.error):
        why = "seems to be there: it misses the journey, not the path; --journey ID makes sure"
    else:
        why = f"cannot be told (HTTP {answer.status}) without a journey: --journey ID"
    return None, Finding(question=question, answer=why, good=None)


def _clock(view: ClientOptions, wall: Callable[[], float]) -> Finding:
    now = view.session.clock.now()
    bounds = view.session.server_clock.bounds(now, view.reconcile.clock_slack)
    question = "the service's clock"
    if bounds is None:
        told = "no answer bore a time, or hosts disagree by more than the slack: creates need tags"
        return Finding(question=question, answer=told, good=None)
    offset = wall() - now
    low, high = bounds.low - offset, bounds.high - offset
    return Finding(question=question, answer=f"{low:+.3f} to {high:+.3f} s from this machine's", good=True)


def _speed(asker: Asker) -> Finding:
    question = "speed of a read"
    if not asker.seconds:
        return Finding(question=question, answer="no read succeeded", good=None)
    median, worst = statistics.median(asker.seconds) * 1000, max(asker.seconds) * 1000
    told = f"{median:.0f} ms (median of {len(asker.seconds)}), {worst:.0f} ms at worst"
    return Finding(question=question, answer=told, good=True)
