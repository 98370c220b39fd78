"""The checkup: runs all checks and collects the findings."""

from __future__ import annotations

import asyncio
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING

import attrs

from invsvc_async.api.operations import WEBHOOKS_HEALTH
from invsvc_async.client import Client, options_of
from invsvc_async.doctor.parameter_names import (
    IMPORTS,
    Named,
    Prober,
    ReadResult,
    find_names,
    tell_nobody,
)
from invsvc_async.errors import InvsvcError
from invsvc_async.transport.client_core import NO_TOKEN, ClientOptions, Request

if TYPE_CHECKING:
    from collections.abc import Callable

_NO_JOURNEY = "invsvc-doctor-none"
_KINDS = {
    "api_key": "an API key",
    "oauth_token": "an OAuth access token",
    "person_token": "a person's token",
}


@attrs.frozen
class Finding:
    """A question and its answer; ``good`` is ``None`` if the answer could not be determined."""

    question: str
    answer: str
    good: bool | None


@attrs.frozen(kw_only=True)
class Checkup:
    """
    All findings.

    ``journey_reads`` is ``None`` if it could not be determined whether a journey can be read.
    """

    findings: list[Finding]
    names: list[Named]
    journey_reads: bool | None
    reads: int

    @property
    def usable(self) -> bool:
        """Whether the deployment answers and accepts this credential."""
        return not any(finding.good is False for finding in self.findings[:2])


async def examine(
    client: Client,
    *,
    journey: str | None = None,
    on_check: Callable[[str], object] = tell_nobody,
) -> Checkup:
    """
    Check what *client* reaches, with about thirty reads, one after another, or a hundred if
    names differ.  Their errors become findings.

    *journey* is the id of an existing journey, needed to check the read of a journey.  *on_check* is called
    with a few words for each check as it begins: with retries, one can take minutes.

    Spec: Endpoints; Authentication.
    """
    prober = Prober(options_of(client))
    on_check("does the base URL answer")
    health = await prober.read(Request(operation=WEBHOOKS_HEALTH))
    # if something else answers, the reads below show whether it is the service
    reached = {200: True, None: False}.get(health.status)
    words = "yes: the health probe reports ok" if reached else health.words
    findings = [Finding("the base URL answers", words, reached)]
    if health.status is None:
        return Checkup(
            findings=findings,
            names=[],
            journey_reads=None,
            reads=0,
        )
    on_check("is the credential accepted")
    list_ = await prober.invoices({})
    accepted = list_.status == 200
    findings.append(
        Finding("the credential is accepted", _words_of_list(list_), accepted)
    )
    team = prober.view.team or list_.item("team")
    imports = partial(prober.path, f"/teams/{team}/integrations/dbtable/webhooks")
    on_check("kind of credential")
    # only a person's may read it
    is_person = isinstance(team, str) and (await imports({})).status == 200
    findings += await _of_credential(prober, list_, is_person=is_person)
    names = await find_names(prober.invoices, on_check=on_check) if accepted else []
    if is_person:
        names += await find_names(imports, IMPORTS, on_check=on_check)
    on_check("GET /journeys/{id}")
    reading = await _journey(prober, journey)
    findings += [
        reading,
        _clock(prober.view),
        _speed(prober.seconds),
        _way(prober.view),
    ]
    return Checkup(
        findings=findings,
        names=names,
        journey_reads=reading.good,
        reads=len(prober.seconds),
    )


def _words_of_list(answer: ReadResult) -> str:
    if answer.status == 200:
        return "yes"
    is_foreign = answer.status is not None and not answer.own
    if is_foreign:
        return f"{answer.words} (not in the service's own envelope)"
    return answer.words


def _speed(seconds: list[float]) -> Finding:
    if not seconds:
        return Finding("speed of a read", "no read succeeded", None)
    median = statistics.median(seconds) * 1000
    maximum = max(seconds) * 1000
    reads = "1 read" if len(seconds) == 1 else f"{len(seconds)} reads"
    words = f"median {median:.0f} ms, maximum {maximum:.0f} ms ({reads})"
    return Finding("speed of a read", words, True)


def _way(view: ClientOptions) -> Finding:
    words = view.core.transport.connections.sent_by
    return Finding("requests are sent", words or "unknown: none was sent", True)


async def _of_credential(
    prober: Prober,
    list_: ReadResult,
    *,
    is_person: bool,
) -> list[Finding]:
    """Check kind and mode.  The token's form and rights must match the kind that is configured."""
    credential = prober.view.core.credential
    try:
        async with asyncio.timeout(prober.view.timeouts.attempt):
            token = (await credential.header()).removeprefix("Bearer ")
    except (TimeoutError, InvsvcError) as error:  # the latter: of a TokenProvider
        why = NO_TOKEN if isinstance(error, TimeoutError) else error
        return [Finding("kind of credential", f"unknown: {why}", None)]
    is_jwt = token.count(".") == 2
    form = "in the form of a JWT"
    if not is_jwt:
        form = f"not {form}"
    answer = f"configured as {_KINDS[credential.kind]}, {form}"
    good = True
    if credential.kind == "api_key" and not is_jwt:
        answer = f"{answer}, unlike every API key. Try INVSVC_OAUTH_TOKEN"
        good = False
    if is_person and credential.kind != "person_token":
        answer = f"{answer}; it reads what only a person may. Use INVSVC_PERSON_TOKEN"
        good = False
    modes = {True: ("live", True), False: ("test", True)}
    mode, is_known = modes.get(
        list_.item("livemode"), ("unknown: there is no invoice to show it", None)
    )
    found = [
        Finding("kind of credential", answer, good),
        Finding("data mode", mode, is_known),
    ]
    if not is_person:
        why = "not checked: needs a person's token with authority in the team"
        found.append(Finding("parameters of the table-database listing", why, None))
    return found


async def _journey(prober: Prober, journey: str | None) -> Finding:
    """Check whether ``GET /journeys/{id}`` exists; it is not in the list of operations."""
    answer = await prober.path(f"/journeys/{journey or _NO_JOURNEY}", {})
    good = None
    words = f"unknown ({answer.words}) without a journey. Use --journey ID"
    if answer.status in (405, 501):
        good = False
        words = answer.words
    elif journey is None:
        nowhere = await prober.path(f"/{_NO_JOURNEY}/{_NO_JOURNEY}", {})
        if answer.status == 404 and (answer.own, answer.error) != (
            nowhere.own,
            nowhere.error,
        ):
            words = "probably exists: the journey is missing, not the path. Use --journey ID to make sure"
    elif answer.status == 200:
        good = True
        words = "exists"
    elif answer.status == 404:
        good = False
        words = f"{answer.words}. If the journey exists, the read does not"
    else:
        words = f"unknown ({answer.words}). Try again"  # a failure shows nothing
    return Finding("GET /journeys/{id}", words, good)


def _clock(view: ClientOptions) -> Finding:
    now = view.core.clock.now()
    offset = time.time() - now  # before what may take a moment
    bounds = view.core.server_clock.bounds(now, view.reconcile.clock_slack)
    question = "the service's clock"
    if bounds is None:
        text = "unknown: no answer has a time, or hosts disagree by more than clock_slack. Creates need tags"
        return Finding(question, text, None)
    low = bounds.low - offset
    high = bounds.high - offset
    return Finding(
        question, f"{low:+.3f} to {high:+.3f} s from this machine's clock", True
    )
