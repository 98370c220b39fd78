"""
Each rule of writes as a row: what happened so far, and what is decided.

Local time runs from 0; the service's clock is 1,000 s ahead, and every answer says so within 10 ms.
"""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import attrs
import pytest

from invsvc_async.api.operations import BY_NAME
from invsvc_async.reconcile.decide import decide
from invsvc_async.reconcile.differences import LEFT_OUT, digest_of
from invsvc_async.reconcile.facts import Known
from invsvc_async.reconcile.findings import decayed
from invsvc_async.reconcile.history import (
    Absent,
    Applied,
    Attempt,
    Bounds,
    CannotTell,
    Closed,
    Done,
    End,
    ErrorFacts,
    Holds,
    Read,
    Reading,
    Resumed,
    Send,
    Superseded,
    Tick,
    Verdict,
    Wait,
)
from invsvc_async.reconcile.intent import NEVER_LISTED, Intent, Scope, Sent, SentEnd
from invsvc_async.reconcile.safety import safety_of
from invsvc_async.reconcile.turn import free_at
from invsvc_async.settings import ReconcilePolicy, Timeouts

AHEAD = 1000.0
BOUNDS = Bounds(low=AHEAD - 0.005, high=AHEAD + 0.005)
TAG = "[iv-aaaaaaaaaaaaaaaa]"
OTHERS_TAG = "[iv-bbbbbbbbbbbbbbbb]"
URL = "https://me.example/in"
OTHER_HOOK = {
    "id": "wh_1",
    "url": "https://me.example/in",
    "events": ["invoice.created"],
    "status": "active",
    "description": "other",
}
HOOK = {
    "id": "wh_1",
    "url": URL,
    "events": ["invoice.created"],
    "status": "active",
    "description": "before",
}
JOURNEY = {"id": "jrn_1", "name": "before", "status": "draft", "last_updated": 1}


def stamp(at):
    return round((at + AHEAD) * 1000)


def intent(operation, **changes):
    body = {
        "webhooks.create": {"url": URL, "events": ["invoice.created"]},
        "webhooks.update": {"description": "mine"},
        "journeys.update": {"name": "mine"},
        "teams.create": {"legal_name": "Acme"},
        "webhooks.delete": None,
    }[operation]
    path = {} if operation in ("webhooks.create", "teams.create") else {"id": "wh_1"}
    base = Intent(
        key="k",
        operation=operation,
        path=path,
        body=body,
        scope=Scope(base_url="b"),
        bounds=BOUNDS,
    )
    return attrs.evolve(base, **changes)


CREATE = intent("webhooks.create")
TAGGED = intent(
    "webhooks.create", tag=TAG, body={**CREATE.body, "description": f"mine {TAG}"}
)
OWN_TEXT = intent(
    "webhooks.create", tag="mine-17", body={**CREATE.body, "description": "x mine-17"}
)
LONG_AGO = {"baseline_at": AHEAD - 60}
UPDATE = intent("webhooks.update", baseline=HOOK, **LONG_AGO)
DELETE = intent("webhooks.delete", baseline=HOOK, **LONG_AGO)
SHOWN = {**HOOK, "description": "mine"}
NEW_UPDATE = attrs.evolve(UPDATE, baseline_at=AHEAD - 1.1)
NEW_DELETE = intent("webhooks.delete", baseline=HOOK, baseline_at=AHEAD - 1)
DRAFT = intent("journeys.update", baseline=JOURNEY, **LONG_AGO)
TEAM = intent("teams.create")
MADE_BY_READER = attrs.evolve(TEAM, reader="r")


def attempt(at=0.0, **changes):
    base = Attempt(started=at, ended=at + 0.01, end=End.ANSWERED)
    return attrs.evolve(base, **changes)


def answered(status, at=0.0, code=None, **changes):
    error = ErrorFacts(kind="x", message="x", status=status, code=code)
    return attempt(
        at, status=status, own_envelope=True, error=error, stamp=stamp(at), **changes
    )


def refused_by_gateway(status, at=0.0, **changes):
    error = ErrorFacts(kind="x", message="x", status=status)
    return attempt(at, status=status, error=error, **changes)


def ok(at=0.0):
    return attempt(
        at,
        status=200,
        readable=True,
        own_envelope=True,
        value={"id": "wh_9"},
        stamp=stamp(at),
    )


def lost(at=0.0, **changes):
    return attempt(at, end=End.LOST, **changes)


def not_sent(at=0.0):
    return attempt(at, end=End.NOT_SENT)


def read(at, seen=None, status=200, **changes):
    many = len(seen) if isinstance(seen, list) else 0
    base = Reading(
        started=at,
        ended=at + 0.01,
        status=status,
        own_envelope=True,
        seen=seen,
        raw_count=many,
        stamp=stamp(at),
    )
    return attrs.evolve(base, **changes)


def failed(at, status=None):
    return Reading(
        started=at, ended=at + 0.01, status=status, own_envelope=status is not None
    )


def found(at, finding, bounds=None):
    return Reading(started=at, ended=at + 0.01, finding=finding, bounds=bounds)


def hook(at=0.005, **changes):
    return {**HOOK, "description": None, "created_at": stamp(at), **changes}


def journey(**changes):
    return {**JOURNEY, **changes}


def next_of(of, *history):
    return decide(Known(BY_NAME[of.operation], of, history))


GRAPH = {"nodes": [], "edges": []}
# A state that was stored without its graph, which was too large; the second has the digest of it.
CUT = attrs.evolve(
    DRAFT,
    body={"name": "mine", "graph": GRAPH},
    policy=ReconcilePolicy(resend="never"),
    baseline=journey(last_updated=stamp(-60.0017)),
)
CUT_WITH_DIGEST = attrs.evolve(
    CUT, baseline={**CUT.baseline, LEFT_OUT: {"graph": digest_of(GRAPH)}}
)
EXACT, ROUNDED = 12345678901234567890, 12345678901234567000  # as sent, and as a double


def graph_of(number):
    return {**GRAPH, "nodes": [{"data": {"config": {"account": number}}}]}


PLACED_BY_NOTHING = intent(
    "journeys.update", bounds=None, baseline=journey(last_updated=5000)
)
FIRST_READ = attrs.evolve(UPDATE, baseline=None, bounds=None)
ONCE = attrs.evolve(CREATE, policy=ReconcilePolicy(resend="never"))
IN_WORDS = attrs.evolve(
    CREATE,
    body={**CREATE.body, "url": f"{URL}?z=2&a=1", "description": "for Café"},
)
OTHER_WORDS = {"url": f"{URL}?a=1&z=2", "description": "for Cafe"}
PATIENT = attrs.evolve(
    CREATE, policy=ReconcilePolicy(wait_when_limited=True, deadline=5.0)
)
OWN = attrs.evolve(TEAM, reader="r")
PUT_BY_OWN = attrs.evolve(
    OWN, operation="client.write", path={"method": "PUT", "path": "/x"}
)


def limited(at=0.0, **changes):
    return answered(429, at, code="rate_limit_exceeded", **changes)


IN_WINDOW, AFTER = 1.0, 15.02  # of a read that follows a LOST at 0
MINUTE = -AHEAD % 60 + 60  # local s at which a minute of the service begins

VERDICTS = {
    # one attempt, and its answer
    "2xx": (CREATE, [ok()], Verdict.APPLIED, "answered"),
    "400": (CREATE, [answered(400)], Verdict.REFUSED, "answered"),
    "404 to the first": (DELETE, [answered(404)], Verdict.REFUSED, "answered"),
    "409 to the first": (UPDATE, [answered(409)], Verdict.REFUSED, "answered"),
    "429 unasked": (CREATE, [answered(429, code="rate_limit_exceeded", retry_after=1.0)], Verdict.REFUSED, "answered"),
    "401 twice, renewed": (CREATE, [answered(401, token_renewed=True), answered(401, 0.1, token_renewed=True)], Verdict.REFUSED, "answered"),
    "429 and waiting allowed, out of time": (PATIENT, [limited(retry_after=5.5)], Verdict.REFUSED, "answered"),
    "429 that says nothing": (PATIENT, [answered(429, retry_after=1.0)], Verdict.REFUSED, "answered"),
    "never left, four times": (CREATE, [not_sent(0), not_sent(1), not_sent(2), not_sent(5)], Verdict.NOT_APPLIED, "never sent"),
    "never left, little time": (CREATE, [not_sent(0), not_sent(59)], Verdict.NOT_APPLIED, "never sent"),
    "never left, woken too late": (CREATE, [not_sent(0), Tick(59.5)], Verdict.NOT_APPLIED, "never sent"),
    "never left, out of time after a long read": (CREATE, [attrs.evolve(failed(0), ended=20.0), not_sent(20.0), not_sent(59.5)], Verdict.NOT_APPLIED, "never sent"),
    "never left, out of time": (CREATE, [not_sent(0), not_sent(61)], Verdict.NOT_APPLIED, "never sent"),
    # no read
    "in doubt without a reader": (TEAM, [lost()], Verdict.UNKNOWN, "none"),
    "in doubt without a reader, refused when sent again": (TEAM, [lost(), answered(400, 1.0)], Verdict.REFUSED, "answered"),
    "own reader's absence decays": (attrs.evolve(CREATE, reader="r", policy=ReconcilePolicy(absence_within=5.0)), [lost(), found(AFTER, Absent())], Verdict.UNKNOWN, "none"),
    "a journey's reader switched off": (attrs.evolve(DRAFT, policy=ReconcilePolicy(journey_reader=None)), [lost()], Verdict.UNKNOWN, "none"),
    "own reader's absence of a team decays": (attrs.evolve(MADE_BY_READER, policy=ReconcilePolicy(absence_within=5.0)), [lost(), found(AFTER, Absent())], Verdict.UNKNOWN, "none"),
    "own reader found it": (attrs.evolve(TEAM, reader="r"), [lost(), found(0.1, Applied(1))], Verdict.APPLIED, "reader"),
    "own reader holds, after": (attrs.evolve(TEAM, reader="r"), [lost(), found(AFTER, Holds(1))], Verdict.APPLIED, "reader"),
    "own reader superseded, after": (attrs.evolve(TEAM, reader="r"), [lost(), found(AFTER, Superseded("x"))], Verdict.SUPERSEDED, "reader"),
    "own reader cannot tell, after": (attrs.evolve(TEAM, reader="r"), [lost(), found(AFTER, CannotTell("x"))], Verdict.UNKNOWN, "none"),
    "202 without a reader": (TEAM, [attrs.evolve(ok(), status=202)], Verdict.UNKNOWN, "none"),
    "202, shown": (UPDATE, [attrs.evolve(ok(), status=202), read(0.1, {**HOOK, "description": "mine"})], Verdict.APPLIED, "equal"),
    "403 of a gateway without a reader": (TEAM, [refused_by_gateway(403)], Verdict.UNKNOWN, "none"),
    "403 of the authentication layer": (TEAM, [refused_by_gateway(403, of_authentication=True)], Verdict.REFUSED, "answered"),
    "403 of a gateway, shown": (DELETE, [refused_by_gateway(403), read(0.1, status=404)], Verdict.APPLIED, "gone"),
    "404 of a gateway, to its read as well": (DELETE, [refused_by_gateway(404), read(0.1, status=404, own_envelope=False), read(AFTER, status=404, own_envelope=False)], Verdict.UNKNOWN, "none"),
    "404 of a gateway, absent": (DELETE, [refused_by_gateway(404), read(AFTER, HOOK)], Verdict.REFUSED, "answered"),
    "429 of a gateway, absent": (attrs.evolve(PATIENT, policy=ReconcilePolicy(wait_when_limited=True)), [refused_by_gateway(429, retry_after=1.0), read(AFTER, [])], Verdict.REFUSED, "answered"),
    "403 of a gateway to a re-send, absent": (attrs.evolve(UPDATE, policy=ReconcilePolicy(max_resends=9)), [lost(), read(AFTER, HOOK), refused_by_gateway(403, 16), read(31.02, HOOK)], Verdict.REFUSED, "answered"),
    # reads that end it at once
    "settling read refused 401": (DELETE, [lost(), failed(0.1, 401)], Verdict.UNKNOWN, "none"),
    "settling read refused 403": (DELETE, [lost(), failed(0.1, 403)], Verdict.UNKNOWN, "none"),
    "no read of journeys, 405": (DRAFT, [lost(), failed(0.1, 405)], Verdict.UNKNOWN, "none"),
    "no read of journeys, 404": (DRAFT, [lost(), failed(0.1, 404)], Verdict.UNKNOWN, "none"),
    "no read of journeys, 405 of a gateway": (DRAFT, [lost(), attrs.evolve(failed(0.1, 405), own_envelope=False)], Verdict.UNKNOWN, "none"),
    # delete
    "delete, gone": (DELETE, [lost(), read(0.1, status=404)], Verdict.APPLIED, "gone"),
    "delete of a new one, gone": (NEW_DELETE, [lost(), read(0.1, status=404), read(AFTER, status=404)], Verdict.APPLIED, "gone"),
    "delete of a new one, gone, when reads can show nothing older": (NEW_DELETE, [lost(), read(0.1, status=404), read(4.3, status=404)], Verdict.APPLIED, "gone"),
    # webhook update
    "update shown": (UPDATE, [lost(), read(0.1, {**HOOK, "description": "mine"})], Verdict.APPLIED, "equal"),
    "update shown, when reads can show nothing older": (NEW_UPDATE, [lost(), read(0.1, SHOWN), read(4.2, SHOWN)], Verdict.APPLIED, "equal"),
    "update shown, where reads do not lag": (attrs.evolve(NEW_UPDATE, policy=ReconcilePolicy(reads_lag=0.0)), [lost(), read(0.1, SHOWN)], Verdict.APPLIED, "equal"),
    "update shown, seen otherwise by a read long before": (attrs.evolve(UPDATE, baseline=None), [read(-6, HOOK), lost(), read(0.1, SHOWN)], Verdict.APPLIED, "equal"),
    "update that changes nothing, after": (attrs.evolve(UPDATE, body={"description": "before"}), [lost(), read(AFTER, HOOK)], Verdict.APPLIED, "equal"),
    "update of events, shown in another order": (attrs.evolve(UPDATE, body={"events": ["b", "a"]}), [lost(), read(0.1, {**HOOK, "events": ["a", "b"]})], Verdict.APPLIED, "equal"),
    "update neither nor, after": (UPDATE, [lost(), read(AFTER, OTHER_HOOK)], Verdict.UNKNOWN, "none"),
    "update neither nor, in both reads": (UPDATE, [lost(), read(5.1, OTHER_HOOK), read(AFTER, OTHER_HOOK)], Verdict.UNKNOWN, "none"),
    "update neither nor, and the read before showed another": (UPDATE, [lost(), read(5.1, HOOK), read(AFTER, OTHER_HOOK)], Verdict.SUPERSEDED, "baseline"),
    "update neither nor, and only the read before the send showed another": (UPDATE, [read(-0.1, HOOK), lost(), read(AFTER, OTHER_HOOK)], Verdict.UNKNOWN, "none"),
    "update as its baseline, and the read before showed another": (UPDATE, [lost(), read(5.1, OTHER_HOOK), read(AFTER, HOOK)], Verdict.UNKNOWN, "none"),
    "update neither nor, no baseline, and the read before showed another": (attrs.evolve(UPDATE, baseline=None), [lost(), read(5.1, HOOK), read(AFTER, OTHER_HOOK)], Verdict.UNKNOWN, "none"),
    "update neither nor, and the read before showed a third state": (UPDATE, [lost(), read(5.1, {**HOOK, "description": "third"}), read(AFTER, OTHER_HOOK)], Verdict.UNKNOWN, "none"),
    "update neither nor, and a read that may lag showed another": (UPDATE, [lost(), read(4.9, HOOK), read(AFTER, OTHER_HOOK)], Verdict.UNKNOWN, "none"),
    "update as its baseline, and a read that may lag showed another": (attrs.evolve(UPDATE, policy=ReconcilePolicy(resend="never")), [lost(), read(4.9, OTHER_HOOK), read(AFTER, HOOK)], Verdict.NOT_APPLIED, "absence"),
    "update gone, and a read that may lag showed it": (UPDATE, [lost(), read(4.9, HOOK), read(AFTER, status=404)], Verdict.UNKNOWN, "none"),
    "update trimmed, after": (attrs.evolve(UPDATE, body={"description": " mine "}), [lost(), read(5.1, HOOK), read(AFTER, {**HOOK, "description": "mine"})], Verdict.UNKNOWN, "none"),
    "update in another case, after": (attrs.evolve(UPDATE, body={"description": "Mine"}), [lost(), read(5.1, HOOK), read(AFTER, {**HOOK, "description": "MINE"})], Verdict.UNKNOWN, "none"),
    "update cut, after": (attrs.evolve(UPDATE, body={"description": "mine, and more"}), [lost(), read(5.1, HOOK), read(AFTER, {**HOOK, "description": "mine, and"})], Verdict.UNKNOWN, "none"),
    "update of the URL, respelled, after": (attrs.evolve(UPDATE, body={"url": "https://x.example/in"}), [lost(), read(5.1, HOOK), read(AFTER, {**HOOK, "url": "https://X.example/in/"})], Verdict.UNKNOWN, "none"),
    "update cut, and another field as before, after": (attrs.evolve(UPDATE, body={"description": "mine, and more", "status": "inactive"}), [lost(), read(5.1, HOOK), read(AFTER, {**HOOK, "description": "mine, and"})], Verdict.UNKNOWN, "none"),
    "update trimmed, with a field that is not shown, after": (attrs.evolve(UPDATE, body={"description": " mine ", "colour": "red"}), [lost(), read(5.1, HOOK), read(AFTER, {**HOOK, "description": "mine"})], Verdict.UNKNOWN, "none"),
    "update emptied, after": (attrs.evolve(UPDATE, body={"description": "mine"}), [lost(), read(5.1, HOOK), read(AFTER, {**HOOK, "description": ""})], Verdict.UNKNOWN, "none"),
    "update gone, after": (UPDATE, [lost(), read(AFTER, status=404)], Verdict.UNKNOWN, "none"),
    "update gone, and the read before showed it": (UPDATE, [lost(), read(5.1, HOOK), read(AFTER, status=404)], Verdict.SUPERSEDED, "gone"),
    "update gone before and after": (attrs.evolve(UPDATE, baseline={}), [lost(), read(AFTER, status=404)], Verdict.UNKNOWN, "none"),
    "update gone before, by a read that may lag, and after": (attrs.evolve(UPDATE, baseline=None), [read(-0.1, status=404), lost(), read(AFTER, status=404)], Verdict.UNKNOWN, "none"),
    "update gone before, and after, where reads do not lag": (attrs.evolve(UPDATE, baseline={}, policy=ReconcilePolicy(reads_lag=0.0)), [lost(), read(AFTER, status=404)], Verdict.NOT_APPLIED, "absence"),
    "update gone before, by a read, and after, where reads do not lag": (attrs.evolve(UPDATE, baseline=None, policy=ReconcilePolicy(reads_lag=0.0)), [read(-0.1, status=404), lost(), read(AFTER, status=404)], Verdict.NOT_APPLIED, "absence"),
    "update gone before, by a gateway's word, and after": (attrs.evolve(UPDATE, baseline=None), [read(-0.1, status=404, own_envelope=False), lost(), read(AFTER, status=404)], Verdict.UNKNOWN, "none"),
    "update gone before, there after": (attrs.evolve(UPDATE, baseline={}), [lost(), read(AFTER, HOOK)], Verdict.UNKNOWN, "none"),
    "update gone, no baseline": (attrs.evolve(UPDATE, baseline=None), [lost(), read(AFTER, status=404)], Verdict.UNKNOWN, "none"),
    "update absent, no baseline": (attrs.evolve(UPDATE, baseline=None), [lost(), read(AFTER, HOOK)], Verdict.UNKNOWN, "none"),
    "update of fields that are not shown": (attrs.evolve(UPDATE, body={"colour": "red"}), [lost(), read(AFTER, HOOK)], Verdict.UNKNOWN, "none"),
    "update's baseline decays": (attrs.evolve(UPDATE, policy=ReconcilePolicy(absence_within=5.0)), [lost(), read(AFTER, HOOK)], Verdict.UNKNOWN, "none"),
    # journey
    "journey changed by us": (DRAFT, [lost(), read(0.1, journey(name="mine"))], Verdict.APPLIED, "equal"),
    "journey's graph, shown with its nulls": (attrs.evolve(DRAFT, body={"graph": GRAPH}, baseline=journey(graph={})), [lost(), read(0.1, journey(graph={**GRAPH, "viewport": None}))], Verdict.APPLIED, "equal"),
    "journey's graph, shown with rounded numbers": (attrs.evolve(DRAFT, body={"graph": graph_of(EXACT)}, baseline=journey(graph=GRAPH)), [lost(), read(AFTER, journey(graph=graph_of(ROUNDED), last_updated=stamp(5)))], Verdict.APPLIED, "equal"),
    "journey's graph, rounded and the same before": (attrs.evolve(DRAFT, body={"graph": graph_of(EXACT)}, baseline=journey(graph=graph_of(ROUNDED))), [lost(), read(AFTER, journey(graph=graph_of(ROUNDED), last_updated=stamp(5)))], Verdict.UNKNOWN, "none"),
    "journey's graph, rounded and not known before": (attrs.evolve(DRAFT, body={"graph": graph_of(EXACT)}), [lost(), read(AFTER, journey(graph=graph_of(ROUNDED), last_updated=stamp(5)))], Verdict.UNKNOWN, "none"),
    "journey's graph, rounded and unchanged": (attrs.evolve(DRAFT, body={"graph": graph_of(EXACT)}, baseline=journey(graph=graph_of(ROUNDED), last_updated=stamp(-4.9963)), policy=ReconcilePolicy(resend="never")), [lost(), read(AFTER, journey(graph=graph_of(ROUNDED), last_updated=stamp(-4.9963)))], Verdict.NOT_APPLIED, "absence"),
    "journey's graph, rounded and unchanged, in the millisecond of the send": (attrs.evolve(DRAFT, body={"graph": graph_of(EXACT)}, baseline=journey(graph=graph_of(ROUNDED), last_updated=stamp(0.0037)), policy=ReconcilePolicy(resend="never")), [lost(), read(AFTER, journey(graph=graph_of(ROUNDED), last_updated=stamp(0.0037)))], Verdict.UNKNOWN, "none"),
    "journey's graph, rounded and unchanged, dated in seconds": (attrs.evolve(DRAFT, body={"graph": graph_of(EXACT)}, baseline=journey(graph=graph_of(ROUNDED), last_updated=1001), policy=ReconcilePolicy(resend="never")), [lost(), read(AFTER, journey(graph=graph_of(ROUNDED), last_updated=1001))], Verdict.UNKNOWN, "none"),
    "journey's graph, a large one that is not stored, another in the millisecond of the send": (attrs.evolve(DRAFT, body={"graph": graph_of(EXACT)}, baseline={"id": "jrn_1", "status": "draft", "last_updated": stamp(0.0037)}, policy=ReconcilePolicy(resend="never")), [lost(), read(AFTER, journey(graph=GRAPH, last_updated=stamp(0.0037)))], Verdict.NOT_APPLIED, "absence"),
    "journey's graph, a large one that is not stored, rounded in the millisecond of the send": (attrs.evolve(DRAFT, body={"graph": graph_of(EXACT)}, baseline={"id": "jrn_1", "status": "draft", "last_updated": stamp(0.0037)}, policy=ReconcilePolicy(resend="never")), [lost(), read(AFTER, journey(graph=graph_of(ROUNDED), last_updated=stamp(0.0037)))], Verdict.UNKNOWN, "none"),
    "journey's graph, a large one that is not stored, another in the minute of the send": (attrs.evolve(DRAFT, body={"graph": graph_of(EXACT)}, baseline={"id": "jrn_1", "status": "draft", "last_updated": stamp(0)}, policy=ReconcilePolicy(resend="never")), [lost(), read(AFTER, journey(graph=GRAPH, last_updated=stamp(0)))], Verdict.UNKNOWN, "none"),
    "journey as before, dated to the day, but an earlier read showed another state": (attrs.evolve(DRAFT, baseline=journey(last_updated=0)), [lost(), read(6.0, journey(name="MINE!", last_updated=0)), read(AFTER, journey(last_updated=0))], Verdict.UNKNOWN, "none"),
    "journey as before, dated to the day, long after": (attrs.evolve(DRAFT, baseline=journey(last_updated=0)), [lost(), read(700.0, journey(last_updated=0))], Verdict.UNKNOWN, "none"),
    "journey with a part that was so before, beside a foreign value, changed since": (attrs.evolve(DRAFT, body={"name": "mine", "description": "foxtrot"}, baseline=journey(name="mine", description="old one")), [lost(), read(AFTER, journey(name="mine", description="quebec zulu", last_updated=stamp(1)))], Verdict.UNKNOWN, "none"),
    "journey with a part that was so before, a foreign value since an earlier read": (attrs.evolve(DRAFT, body={"name": "mine", "description": "foxtrot"}, baseline=journey(name="mine", description="old one")), [lost(), read(6.0, journey(name="mine", description="old one")), read(AFTER, journey(name="mine", description="quebec zulu", last_updated=stamp(7)))], Verdict.SUPERSEDED, "baseline"),
    "journey with a foreign value of just before the send, its time rounded up": (DRAFT, [lost(0.55), read(16.0, journey(name="zulu", last_updated=stamp(1)))], Verdict.UNKNOWN, "none"),
    "tagged, in a text that a service may count as longer than one that it kept": (attrs.evolve(TAGGED, body={**TAGGED.body, "description": f"{'é' * 40} {TAG}"}), [lost(), read(AFTER, [hook(-500, id="wh_7", url="https://other.example/in", description=f"{'a' * 50} {OTHERS_TAG}"), hook(id="wh_2")])], Verdict.UNKNOWN, "none"),
    "journey's other object, shown without a null": (attrs.evolve(DRAFT, body={"new": {"viewport": None}}), [lost(), read(AFTER, journey(new={}, last_updated=stamp(5)))], Verdict.UNKNOWN, "none"),
    "journey's name, trimmed": (attrs.evolve(DRAFT, body={"name": " mine "}), [lost(), read(AFTER, journey(name="mine", last_updated=stamp(5)))], Verdict.UNKNOWN, "none"),
    "journey's name, in another case": (attrs.evolve(DRAFT, body={"name": "Mine  too"}), [lost(), read(AFTER, journey(name="mine too", last_updated=stamp(5)))], Verdict.UNKNOWN, "none"),
    "journey's name, cut": (attrs.evolve(DRAFT, body={"name": "mine, and more"}), [lost(), read(AFTER, journey(name="mine, and", last_updated=stamp(5)))], Verdict.UNKNOWN, "none"),
    "journey's name, longer": (attrs.evolve(DRAFT, body={"name": "mine"}), [lost(), read(AFTER, journey(name="mine, and", last_updated=stamp(5)))], Verdict.UNKNOWN, "none"),
    "journey's graph, with an empty config": (attrs.evolve(DRAFT, body={"graph": {**GRAPH, "nodes": [{"data": {}}]}}), [lost(), read(AFTER, journey(graph={**GRAPH, "nodes": [{"data": {"config": {}}}]}, last_updated=stamp(5)))], Verdict.UNKNOWN, "none"),
    "journey's empty description, as null": (attrs.evolve(DRAFT, body={"description": ""}), [lost(), read(AFTER, journey(description=None, last_updated=stamp(5)))], Verdict.UNKNOWN, "none"),
    "journey's name trimmed, its description changed": (attrs.evolve(DRAFT, body={"name": " mine ", "description": ""}), [lost(), read(AFTER, journey(name="mine", description="x", last_updated=stamp(5)))], Verdict.UNKNOWN, "none"),
    "journey placed by nothing, no baseline": (attrs.evolve(PLACED_BY_NOTHING, baseline=None), [lost(), read(AFTER, journey(last_updated=5000), stamp=None)], Verdict.UNKNOWN, "none"),
    "journey placed by nothing, another time": (PLACED_BY_NOTHING, [lost(), read(AFTER, journey(last_updated=5001), stamp=None)], Verdict.UNKNOWN, "none"),
    "journey placed by nothing, no times": (attrs.evolve(PLACED_BY_NOTHING, baseline={"status": "draft"}), [lost(), read(AFTER, {"status": "draft"}, stamp=None)], Verdict.UNKNOWN, "none"),
    "journey equal before, updated after": (attrs.evolve(DRAFT, baseline=None), [lost(), read(0.5, journey(name="mine", last_updated=stamp(0.4)))], Verdict.APPLIED, "equal"),
    "journey equal in the band, and later than its baseline": (attrs.evolve(DRAFT, baseline_at=AHEAD - 0.1), [lost(), read(0.1, journey(name="mine", last_updated=stamp(0.05)))], Verdict.APPLIED, "equal"),
    "journey equal before its baseline": (attrs.evolve(DRAFT, baseline=journey(last_updated=stamp(-5)), policy=ReconcilePolicy(resend="never")), [lost(), read(0.1, journey(name="mine", last_updated=stamp(-6))), read(AFTER, journey(last_updated=stamp(-5)))], Verdict.NOT_APPLIED, "absence"),
    "journey already so, after": (attrs.evolve(DRAFT, baseline=None), [lost(), read(AFTER, journey(name="mine"))], Verdict.APPLIED, "equal"),
    "journey already so, and changed after": (attrs.evolve(DRAFT, body={"name": "before"}), [lost(), read(AFTER, journey(last_updated=stamp(5)))], Verdict.APPLIED, "equal"),
    "journey changed since, after, no baseline": (attrs.evolve(DRAFT, baseline=None), [lost(), read(AFTER, journey(name="x", last_updated=stamp(5)))], Verdict.SUPERSEDED, "last_updated"),
    "journey changed since, after": (DRAFT, [lost(), read(AFTER, journey(name="x", last_updated=stamp(5)))], Verdict.SUPERSEDED, "baseline"),
    "journey changed in the band, after": (DRAFT, [lost(), read(AFTER, journey(name="x", last_updated=stamp(0.1)))], Verdict.UNKNOWN, "none"),
    "journey changed in the band, and the read before showed another time": (DRAFT, [lost(), read(5.1, JOURNEY), read(AFTER, journey(name="x", last_updated=stamp(0.1)))], Verdict.SUPERSEDED, "baseline"),
    "journey changed in the band, and the read before showed another field": (DRAFT, [lost(), read(5.1, journey(name="y", last_updated=None)), read(AFTER, journey(name="x", last_updated=None))], Verdict.SUPERSEDED, "baseline"),
    "journey changed in the band, and the read before showed the same": (DRAFT, [lost(), read(5.1, journey(name="x", last_updated=stamp(0.1))), read(AFTER, journey(name="x", last_updated=stamp(0.1)))], Verdict.UNKNOWN, "none"),
    "journey changed in the band, and the read before showed a snapshot": (DRAFT, [lost(), read(5.1, journey(status="published")), read(AFTER, journey(name="x", last_updated=stamp(0.1)))], Verdict.UNKNOWN, "none"),
    "journey changed at a time to come, after": (DRAFT, [lost(), read(AFTER, journey(name="x", last_updated=stamp(AFTER + 0.251)))], Verdict.UNKNOWN, "none"),
    "journey changed at a time to come within the slack, after": (DRAFT, [lost(), read(AFTER, journey(name="x", last_updated=stamp(AFTER + 0.25)))], Verdict.SUPERSEDED, "baseline"),
    "journey changed at a time to come, unstamped, after": (DRAFT, [lost(), read(AFTER, journey(name="x", last_updated=stamp(AFTER + 0.3)), stamp=None)], Verdict.UNKNOWN, "none"),
    "journey with its baseline's time and other fields, after": (DRAFT, [lost(), read(AFTER, journey(name="x", last_updated=stamp(0.0))) ], Verdict.UNKNOWN, "none"),
    "journey changed, null time": (DRAFT, [lost(), read(AFTER, journey(name="x", last_updated=None))], Verdict.UNKNOWN, "none"),
    "journey changed in a wide band, after": (attrs.evolve(DRAFT, bounds=Bounds(low=AHEAD - 1, high=AHEAD + 1)), [lost(5.0), read(25.0, journey(name="x", last_updated=stamp(5)), stamp=None)], Verdict.UNKNOWN, "none"),
    "null equals no time": (attrs.evolve(DRAFT, baseline=journey(last_updated=None)), [lost(), read(AFTER, journey(last_updated=None))], Verdict.UNKNOWN, "none"),
    "published journey, after": (DRAFT, [lost(), read(AFTER, journey(name="mine", status="published"))], Verdict.UNKNOWN, "none"),
    "published, and reads show drafts": (attrs.evolve(DRAFT, policy=ReconcilePolicy(journey_reads_show_drafts=True)), [lost(), read(0.1, journey(name="mine", status="published"))], Verdict.APPLIED, "equal"),
    "undated part in a field that the stored state lacks, after": (CUT, [lost(), read(AFTER, {**CUT.baseline, "graph": GRAPH})], Verdict.UNKNOWN, "none"),
    "undated part in a field that the stored state lacks, of which it has a digest, after": (CUT_WITH_DIGEST, [lost(), read(AFTER, {**CUT.baseline, "graph": {**GRAPH, "nodes": [{"id": "x"}]}})], Verdict.NOT_APPLIED, "absence"),
    "field that the stored state lacks, as before by its digest, after": (CUT_WITH_DIGEST, [lost(), read(AFTER, {**CUT.baseline, "graph": GRAPH})], Verdict.NOT_APPLIED, "absence"),
    "undated part in a field with another digest before, after": (attrs.evolve(CUT_WITH_DIGEST, body={"name": "mine", "graph": graph_of(1)}), [lost(), read(AFTER, {**CUT.baseline, "graph": graph_of(1)})], Verdict.UNKNOWN, "none"),
    "only nulls that are never shown": (attrs.evolve(DRAFT, body={"graph": None}), [lost(), read(AFTER, JOURNEY)], Verdict.UNKNOWN, "none"),
    # create
    "create found, that an answer gave to another": (attrs.evolve(CREATE, policy=ReconcilePolicy(resend="never")), [lost(), read(AFTER, [hook()], claimed_by_others=frozenset({"wh_1"}))], Verdict.NOT_APPLIED, "absence"),
    "create found, that another may have by a match": (CREATE, [lost(), read(AFTER, [hook()], guessed=frozenset({"wh_1"}))], Verdict.UNKNOWN, "none"),
    "create found, beside one that another may have by a match": (CREATE, [lost(), read(0.1, [hook(), hook(id="wh_2")], guessed=frozenset({"wh_2"}))], Verdict.APPLIED, "match"),
    "create known before the send": (attrs.evolve(CREATE, strangers=("wh_1",), policy=ReconcilePolicy(resend="never")), [lost(), read(AFTER, [hook()])], Verdict.NOT_APPLIED, "absence"),
    "create found, created when ids were forgotten": (attrs.evolve(CREATE, forgotten_until=stamp(0.005)), [lost(), read(AFTER, [hook(0.005)])], Verdict.UNKNOWN, "none"),
    "create found, created when ids were forgotten, after a full list": (attrs.evolve(CREATE, forgotten_until=stamp(0.005)), [read(-0.02, [], full=True), lost(), read(AFTER, [hook(0.005)])], Verdict.UNKNOWN, "none"),
    "create found, created when ids were forgotten, after a list of as many as are listed": (attrs.evolve(CREATE, forgotten_until=stamp(0.005)), [read(-0.02, [], raw_count=100), lost(), read(AFTER, [hook(0.005)])], Verdict.UNKNOWN, "none"),
    "create found, created when ids were forgotten, after a whole list": (attrs.evolve(CREATE, forgotten_until=stamp(0.005)), [read(-0.02, []), lost(), read(0.1, [hook(0.005)])], Verdict.APPLIED, "match"),
    "create found, created before the first list, which was full": (attrs.evolve(CREATE, forgotten_until=NEVER_LISTED), [read(-0.02, [], full=True), lost(), read(AFTER, [hook(-0.021)])], Verdict.UNKNOWN, "none"),
    "create found, created after the first list, which was full": (attrs.evolve(CREATE, forgotten_until=NEVER_LISTED), [read(-0.02, [], full=True), lost(), read(0.1, [hook()])], Verdict.APPLIED, "match"),
    "create found, and the first list was full and told no time": (attrs.evolve(CREATE, forgotten_until=NEVER_LISTED), [read(-0.02, [], full=True, stamp=None), lost(), read(AFTER, [hook()])], Verdict.UNKNOWN, "none"),
    "create found with a time that may be rounded, when ids were forgotten": (attrs.evolve(CREATE, forgotten_until=stamp(0.8)), [lost(0.9), read(16.0, [hook(1.0)])], Verdict.UNKNOWN, "none"),
    "create found, created later than the forgotten ids": (attrs.evolve(CREATE, forgotten_until=stamp(0.004)), [lost(), read(0.1, [hook(0.005)])], Verdict.APPLIED, "match"),
    "create found with a time of whole seconds, after": (CREATE, [lost(0.7), read(16, [hook(0)])], Verdict.UNKNOWN, "none"),
    "create found with an earlier time of whole seconds, after": (attrs.evolve(CREATE, policy=ReconcilePolicy(resend="never")), [lost(0.7), read(16, [hook(-1)])], Verdict.NOT_APPLIED, "absence"),
    "create found with a time to come, after": (CREATE, [lost(), read(AFTER, [hook(15.3)], stamp=stamp(15.04))], Verdict.UNKNOWN, "none"),
    "equal, with a time that may be cut, read long after": (CREATE, [lost(MINUTE - 5), read(MINUTE + 40, [hook(MINUTE)])], Verdict.UNKNOWN, "none"),
    "equal, with a time that may be cut, read in the window": (CREATE, [lost(MINUTE - 5), read(MINUTE + 1, [hook(MINUTE)])], Verdict.APPLIED, "match"),
    "equal, with a time that may be cut, read at its end": (CREATE, [lost(MINUTE - 5), read(MINUTE + 10.02, [hook(MINUTE)])], Verdict.APPLIED, "match"),
    "equal, created long after": (CREATE, [lost(), read(20.0, [hook(15.9)])], Verdict.UNKNOWN, "none"),
    "short list that goes on, after": (CREATE, [lost(), read(AFTER, [], full=True)], Verdict.UNKNOWN, "none"),
    "full list by its count alone, after": (CREATE, [lost(), read(AFTER, [], raw_count=100)], Verdict.UNKNOWN, "none"),
    "create found": (CREATE, [lost(), read(0.1, [hook()])], Verdict.APPLIED, "match"),
    "create found, and the read before it failed": (CREATE, [failed(-0.1), lost(), read(0.1, [hook()])], Verdict.APPLIED, "match"),
    "create found by its tag, whatever else": (TAGGED, [lost(), read(0.1, [hook(-500, url="https://x.example", description=f"edited {TAG}")])], Verdict.APPLIED, "tag"),
    "create in a full list, by its tag": (TAGGED, [lost(), read(0.1, [hook(description=TAG)] * 1 + [hook(url="https://x.example")] * 99, full=True)], Verdict.APPLIED, "tag"),
    "create found by the caller's own text alone": (OWN_TEXT, [lost(), read(0.1, [hook(description="mine-17")])], Verdict.APPLIED, "tag"),
    "create found by the caller's own text, edited": (OWN_TEXT, [lost(), read(0.1, [hook(description="x mine-17", events=[])])], Verdict.APPLIED, "tag"),
    "the caller's own text at another URL, after": (OWN_TEXT, [lost(), read(AFTER, [hook(url="https://x.example", description="x mine-17")])], Verdict.UNKNOWN, "none"),
    "the caller's own text at another URL, edited, after": (OWN_TEXT, [lost(), read(AFTER, [hook(url="https://x.example", description="edited mine-17", events=[])])], Verdict.UNKNOWN, "none"),
    "the caller's own text twice for one send, after": (OWN_TEXT, [lost(), read(AFTER, [hook(id="wh_1", description="mine-17"), hook(id="wh_2", description="mine-17")])], Verdict.UNKNOWN, "none"),
    "the caller's own text of a wide band, after": (attrs.evolve(OWN_TEXT, bounds=Bounds(low=AHEAD - 1, high=AHEAD + 1)), [lost(5.0), read(25.0, [hook(5.0, description="mine-17")], stamp=None)], Verdict.UNKNOWN, "none"),
    "create with another's tag in its own body": (attrs.evolve(CREATE, body={**CREATE.body, "description": OTHERS_TAG}), [lost(), read(0.1, [hook(description=OTHERS_TAG)])], Verdict.APPLIED, "match"),
    "near match in the last moment, after": (attrs.evolve(CREATE, bounds=Bounds(low=AHEAD, high=AHEAD)), [lost(ended=0.5), read(16.0, [hook(15.75, events=[])], stamp=None)], Verdict.UNKNOWN, "none"),
    "near match, after": (CREATE, [lost(), read(AFTER, [hook(events=["payment.created"])])], Verdict.UNKNOWN, "none"),
    "two exact for one send, after": (CREATE, [lost(), read(AFTER, [hook(id="wh_1"), hook(id="wh_2")])], Verdict.UNKNOWN, "none"),
    "equal but for the URL, after": (CREATE, [lost(), read(AFTER, [hook(url="https://x.example/")])], Verdict.UNKNOWN, "none"),
    "equal but for the URL, without a time": (CREATE, [lost(), read(AFTER, [hook(url="https://x.example/", created_at=None)])], Verdict.UNKNOWN, "none"),
    "equal but for the URL, of another write": (ONCE, [lost(), read(AFTER, [hook(url="https://x.example/")], guessed=frozenset({"wh_1"}))], Verdict.NOT_APPLIED, "absence"),
    "equal but for the URL, made before": (ONCE, [lost(), read(AFTER, [hook(-5, url="https://x.example/")])], Verdict.NOT_APPLIED, "absence"),
    "equal but for the URL, made after the window": (ONCE, [lost(), read(20.0, [hook(15.9, url="https://x.example/")])], Verdict.NOT_APPLIED, "absence"),
    "another URL and description": (ONCE, [lost(), read(AFTER, [hook(url="https://x.example/", description="x")])], Verdict.NOT_APPLIED, "absence"),
    "in other words, made after the window": (IN_WORDS, [lost(), read(20.0, [hook(15.9, **OTHER_WORDS)])], Verdict.UNKNOWN, "none"),
    "in other words, made after the window of an older copy": (attrs.evolve(IN_WORDS, sent=(Sent(earliest=AHEAD, latest=AHEAD, attempt_timeout=1.0),)), [Resumed(at=100.0, reads_only=True), read(100.1, [hook(70.0, **OTHER_WORDS)])], Verdict.UNKNOWN, "none"),
    "at the same URL in other words, made after the window": (IN_WORDS, [lost(), read(20.0, [hook(15.9, url=IN_WORDS.body["url"], description="for Cafe")])], Verdict.UNKNOWN, "none"),
    "in other words, but for the path, made after the window": (attrs.evolve(IN_WORDS, policy=ONCE.policy), [lost(), read(20.0, [hook(15.9, **{**OTHER_WORDS, "url": "https://me.example/out?a=1&z=2"})])], Verdict.NOT_APPLIED, "absence"),
    "at the same URL with another description, made after the window": (attrs.evolve(IN_WORDS, policy=ONCE.policy), [lost(), read(20.0, [hook(15.9, url=IN_WORDS.body["url"], description="theirs")])], Verdict.NOT_APPLIED, "absence"),
    "in other words, made after the window, of another write": (attrs.evolve(IN_WORDS, policy=ONCE.policy), [lost(), read(20.0, [hook(15.9, **OTHER_WORDS)], guessed=frozenset({"wh_1"}))], Verdict.NOT_APPLIED, "absence"),
    "equal but for the URL, beside the one": (CREATE, [lost(), read(0.1, [hook(), hook(id="wh_2", url="https://x.example/")])], Verdict.APPLIED, "match"),
    "item that cannot be read, after": (CREATE, [lost(), read(AFTER, ["?"])], Verdict.UNKNOWN, "none"),
    "created_at that cannot be read, after": (CREATE, [lost(), read(AFTER, [hook(created_at="?", events=[])])], Verdict.UNKNOWN, "none"),
    "full list, after": (CREATE, [lost(), read(AFTER, [hook(url="https://x.example", description="x")] * 100)], Verdict.UNKNOWN, "none"),
    "absence decays": (attrs.evolve(CREATE, policy=ReconcilePolicy(absence_within=5.0)), [lost(), read(AFTER, [])], Verdict.UNKNOWN, "none"),
    "absent, no re-send allowed": (attrs.evolve(CREATE, policy=ReconcilePolicy(resend="never")), [lost(), read(AFTER, [])], Verdict.NOT_APPLIED, "absence"),
    "absent, re-send used up": (CREATE, [lost(), read(AFTER, []), lost(16), read(31.02, [])], Verdict.NOT_APPLIED, "absence"),
    "absent, four re-sends never left": (CREATE, [lost(), not_sent(16), not_sent(17), not_sent(18), not_sent(20), read(23, [])], Verdict.NOT_APPLIED, "absence"),
    "absent, no time for a re-send": (attrs.evolve(CREATE, policy=ReconcilePolicy(deadline=44.0)), [lost(), read(AFTER, [])], Verdict.NOT_APPLIED, "absence"),
    # a re-send
    "re-send refused": (CREATE, [lost(), read(AFTER, []), answered(400, 16)], Verdict.REFUSED, "answered"),
    "re-send refused 401": (CREATE, [lost(), read(AFTER, []), answered(401, 16, token_renewed=True)], Verdict.REFUSED, "answered"),
    "re-sent update answered": (UPDATE, [lost(), read(AFTER, HOOK), ok(16)], Verdict.APPLIED, "answered"),
    "echo of what the state shows": (DELETE, [lost(), read(AFTER, HOOK), answered(404, 16), read(16.1, status=404)], Verdict.APPLIED, "gone"),
    "echo of what the state shows, 410": (DELETE, [lost(), read(AFTER, HOOK), answered(410, 16), read(16.1, status=404)], Verdict.APPLIED, "gone"),
    "echo of nothing": (UPDATE, [lost(), read(AFTER, HOOK), answered(409, 16), read(16.1, HOOK)], Verdict.REFUSED, "answered"),
    "re-sent create answered, audited": (CREATE, [lost(), read(AFTER, []), ok(16), read(16.1, [hook(16.0)])], Verdict.APPLIED, "match"),
    "re-sent create answered, audit failed": (CREATE, [lost(), read(AFTER, []), ok(16), failed(16.1)], Verdict.APPLIED, "answered"),
    "shown before the first send": (attrs.evolve(CREATE, policy=ReconcilePolicy(resend="never")), [read(-0.1, [hook()]), lost(), read(AFTER, [hook()])], Verdict.NOT_APPLIED, "absence"),
    "own reader's create re-sent, audited": (attrs.evolve(TEAM, reader="r"), [lost(), found(AFTER, Absent()), lost(16), found(31.1, Applied(1))], Verdict.APPLIED, "reader"),
    "own reader's update re-sent, found at once": (attrs.evolve(DRAFT, reader="r"), [lost(), found(AFTER, Absent()), lost(16), found(16.1, Applied(1))], Verdict.APPLIED, "reader"),
    "own reader's PUT re-sent, found at once": (PUT_BY_OWN, [lost(), found(AFTER, Absent()), lost(16), found(16.1, Applied(1))], Verdict.APPLIED, "reader"),
    # the client is closed
    "closed in doubt": (CREATE, [lost(), Closed(1.0)], Verdict.UNKNOWN, "none"),
    "closed before it left": (CREATE, [not_sent(), Closed(0.05)], Verdict.NOT_APPLIED, "never sent"),
    "closed while a limit is waited out": (PATIENT, [limited(retry_after=3.0), Closed(1.0)], Verdict.NOT_APPLIED, "answered"),
    "limited, then never left": (PATIENT, [limited(retry_after=0.1), not_sent(0.3), not_sent(0.5), not_sent(1.1), not_sent(3.2)], Verdict.NOT_APPLIED, "answered"),
    "limited, then never left, out of time": (PATIENT, [limited(retry_after=0.1), not_sent(0.3), not_sent(61)], Verdict.NOT_APPLIED, "answered"),
    "closed after the answer": (CREATE, [ok(), Closed(1.0)], Verdict.APPLIED, "answered"),
    "closed after a refusal": (CREATE, [answered(400), Closed(1.0)], Verdict.REFUSED, "answered"),
    # deadline
    "deadline in the window": (attrs.evolve(CREATE, policy=ReconcilePolicy(deadline=1.0)), [lost(), read(1.02, [])], Verdict.UNKNOWN, "none"),
    "deadline with failing reads": (CREATE, [lost(), failed(90.02)], Verdict.UNKNOWN, "none"),
    "deadline as a read starts": (attrs.evolve(CREATE, policy=ReconcilePolicy(deadline=1.0)), [lost(ended=0.5), attrs.evolve(failed(1.5), ended=1.5)], Verdict.UNKNOWN, "none"),
    "deadline in the middle of a read": (attrs.evolve(CREATE, policy=ReconcilePolicy(deadline=1.0)), [lost(ended=0.5), failed(1.495)], Verdict.UNKNOWN, "none"),
    "deadline as the window ends": (attrs.evolve(CREATE, policy=ReconcilePolicy(deadline=1.0)), [lost(ended=0.5), attrs.evolve(failed(15.0), ended=15.5)], Verdict.UNKNOWN, "none"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("of", "history", "verdict", "basis"), VERDICTS.values(), ids=VERDICTS
)
def test_verdict(of, history, verdict, basis):
    """The history ends with this verdict, on this basis."""
    decision = next_of(of, *history)
    assert isinstance(decision, Done), decision
    assert (decision.verdict, decision.evidence.basis) == (verdict, basis)


GOES_ON = {
    # before the first send
    "clock known": (CREATE, [], Send(attempt_timeout=30.0)),
    "clock not known": (attrs.evolve(CREATE, bounds=None), [], Read),
    "baseline not known": (attrs.evolve(UPDATE, baseline=None), [], Read),
    "the read before failed": (FIRST_READ, [failed(0)], Wait(pytest.approx(0.1))),
    "the read before failed, waited": (FIRST_READ, [failed(0), Tick(0.12)], Read),
    "the read before failed twice": (FIRST_READ, [failed(0), failed(0.12)], Wait(pytest.approx(0.5))),
    "the read before failed twice, waited": (FIRST_READ, [failed(0), failed(0.12), Tick(0.7)], Read),
    "the read before failed three times": (FIRST_READ, [failed(0), failed(0.12), failed(0.7)], Send(attempt_timeout=30.0)),
    "the read before was refused": (FIRST_READ, [failed(0, 401)], Send(attempt_timeout=30.0)),
    "the read before was forbidden": (FIRST_READ, [failed(0, 403)], Send(attempt_timeout=30.0)),
    "the read before failed, and half of the call's time is over": (attrs.evolve(FIRST_READ, timeouts=Timeouts(call=0.2)), [failed(0)], Send(attempt_timeout=0.2)),
    "the read before failed, and half of the call's time is nearly over": (attrs.evolve(FIRST_READ, timeouts=Timeouts(call=0.24)), [failed(0)], Wait(pytest.approx(0.1))),
    "no read of journeys before": (attrs.evolve(DRAFT, bounds=None), [failed(0, 405)], Send(attempt_timeout=30.0)),
    "the read before told no time": (FIRST_READ, [read(0, HOOK, stamp=None)], Send(attempt_timeout=30.0)),
    "the thing was known to be gone": (attrs.evolve(UPDATE, baseline={}), [], Send(attempt_timeout=30.0)),
    "journey's graph that its baseline does not hold": (attrs.evolve(DRAFT, body={"graph": GRAPH}), [lost(), read(0.1, journey(graph=GRAPH))], Wait),
    "journey with all that was sent, of which the stored state lacks some": (attrs.evolve(CUT, body={"name": "before", "graph": GRAPH}), [lost(), read(0.5, journey(graph=GRAPH, last_updated=stamp(0.4)))], Wait),
    "journey with its baseline's time": (DRAFT, [lost(), read(AFTER, JOURNEY)], Send),
    "no read for it": (attrs.evolve(TEAM, bounds=None), [], Send),
    # definite noes that go on
    "never left": (CREATE, [not_sent()], Wait(pytest.approx(0.1))),
    "never left, waited": (CREATE, [not_sent(), Tick(0.12)], Send(attempt_timeout=30.0)),
    "never left, less time than an attempt": (CREATE, [not_sent(40), not_sent(75), Tick(75.6)], Send(attempt_timeout=pytest.approx(24.4))),
    "never left, a late wake": (CREATE, [not_sent(0), not_sent(55), Tick(57)], Send(attempt_timeout=pytest.approx(3.0))),
    "never left, three times": (CREATE, [not_sent(0), not_sent(1), not_sent(2)], Wait(pytest.approx(2.0))),
    "429, due as its time ends": (PATIENT, [limited(ended=0.5, retry_after=4.5)], Wait(4.5)),
    "429, due now": (PATIENT, [limited(ended=0.5, retry_after=4.5), Tick(5.0)], Send(attempt_timeout=30.0)),
    "429 for the fourth time, at once": (PATIENT, [limited(at, retry_after=0.0) for at in range(4)], Wait(pytest.approx(0.8))),
    "401 renewed": (CREATE, [answered(401, token_renewed=True)], Send(attempt_timeout=30.0)),
    "429 and waiting allowed": (attrs.evolve(CREATE, policy=ReconcilePolicy(wait_when_limited=True)), [answered(429, code="rate_limit_exceeded", retry_after=3.0)], Wait(pytest.approx(3.0))),
    # in doubt: read at once, then wait
    "lost": (CREATE, [lost()], Read),
    "408": (CREATE, [attempt(status=408, own_envelope=True)], Read),
    "502 of a gateway": (CREATE, [attempt(status=502)], Read),
    "redirect": (CREATE, [attempt(status=302)], Read),
    "2xx that cannot be read": (CREATE, [attempt(status=200)], Read),
    "absent in the window": (CREATE, [lost(), read(0.1, [])], Wait(pytest.approx(0.5))),
    "absent in the window, twice": (CREATE, [lost(), read(0.1, []), read(0.6, [])], Wait(pytest.approx(1.0))),
    "absent in the window, five times": (CREATE, [lost(), *(read(at, []) for at in (0.1, 0.6, 1.6, 3.6, 7.6))], Wait(pytest.approx(5.0))),
    "superseded in the window": (UPDATE, [lost(), read(0.1, {**HOOK, "description": "other"})], Wait),
    "holds in the window": (attrs.evolve(UPDATE, body={"description": "before"}), [lost(), read(0.1, HOOK)], Wait),
    "one read exactly when the window ends": (CREATE, [lost(), read(14.9, [])], Wait(pytest.approx(0.1))),
    "journey already so in the window, and changed after": (attrs.evolve(DRAFT, body={"name": "before"}), [lost(), read(0.5, journey(last_updated=stamp(0.4)))], Wait),
    "journey already so in the window, and changed in the band": (attrs.evolve(DRAFT, body={"name": "before"}), [lost(), read(0.5, journey(last_updated=stamp(0.05)))], Wait),
    "a wait for the deadline that ended late": (attrs.evolve(CREATE, policy=ReconcilePolicy(deadline=15.0)), [lost(), read(10, []), Tick(15.02)], Read),
    "a wait for the deadline, and one more": (attrs.evolve(CREATE, policy=ReconcilePolicy(deadline=15.0)), [lost(), read(10, []), Tick(15.02), Tick(15.03)], Done),
    "a read that began in the window and ended after": (CREATE, [lost(), read(15.005, [])], Read),
    "short window after an own 500": (attrs.evolve(UPDATE, policy=ReconcilePolicy(resend="never")), [answered(500), read(4.9, HOOK)], Wait(pytest.approx(0.1))),
    "long window of a create after an own 500": (CREATE, [answered(500), read(14.9, [])], Wait(pytest.approx(0.1))),
    "long window of a create with an own reader after an own 500": (MADE_BY_READER, [answered(500), found(14.9, Absent())], Wait(pytest.approx(0.1))),
    "update shown, but seen as before just now": (NEW_UPDATE, [lost(), read(0.1, SHOWN)], Wait(pytest.approx(4.155 - 0.11))),
    "update shown, and nobody knows when it was otherwise": (attrs.evolve(UPDATE, baseline_at=None), [lost(), read(0.1, SHOWN)], Wait(pytest.approx(5.0 - 0.11))),
    "long window after a gateway's 500": (CREATE, [attempt(status=500), read(2.5, [])], Wait),
    "a failed read after the window": (CREATE, [lost(), failed(AFTER)], Wait),
    "a failed read that began as the window ended": (CREATE, [lost(ended=0.5), failed(15.5)], Wait(pytest.approx(0.5))),
    "the deadline, and no read has begun then": (attrs.evolve(CREATE, policy=ReconcilePolicy(deadline=1.0)), [lost(ended=0.5), failed(0.5), Tick(1.5)], Read),
    "a gateway's 404 is no evidence": (DELETE, [lost(), Reading(started=AFTER, ended=AFTER + 0.01, status=404)], Wait),
    "a gateway's 404 says nothing of a journey's read": (DRAFT, [lost(), Reading(started=0.1, ended=0.11, status=404)], Wait),
    "own reader of journeys": (attrs.evolve(DRAFT, policy=ReconcilePolicy(journey_reader=found)), [lost()], Read),
    "a list that is no list": (CREATE, [lost(), read(AFTER, {"id": 1})], Wait),
    # re-sends
    "absent after the window": (CREATE, [lost(), read(AFTER, [])], Send(not_after=pytest.approx(AFTER + 5.01), attempt_timeout=30.0)),
    "absent after a short window": (UPDATE, [answered(500), read(5.02, HOOK)], Send(not_after=pytest.approx(10.03), attempt_timeout=30.0)),
    "attempt timeout shrinks to fit": (attrs.evolve(CREATE, policy=ReconcilePolicy(deadline=50.0)), [lost(), read(AFTER, [])], Send(not_after=pytest.approx(AFTER + 5.01), attempt_timeout=pytest.approx(50.01 - AFTER - 0.01 - 25.0))),
    "not sent in doubt needs a new proof": (CREATE, [lost(), read(AFTER, []), not_sent(16), Tick(17)], Read),
    "not sent in doubt: a pause": (CREATE, [lost(), read(AFTER, []), not_sent(16)], Wait(pytest.approx(0.1))),
    "not sent in doubt, again: a longer pause": (CREATE, [lost(), not_sent(16), not_sent(17)], Wait(pytest.approx(0.5))),
    "three re-sends never left": (CREATE, [lost(), not_sent(16), not_sent(17), not_sent(18), read(19, [])], Send),
    "the least time for a re-send": (attrs.evolve(CREATE, policy=ReconcilePolicy(deadline=45.5)), [lost(ended=0.5), attrs.evolve(read(15.5, []), ended=16.0)], Send(not_after=21.0, attempt_timeout=5.0)),
    "all the time a short attempt is given": (attrs.evolve(CREATE, timeouts=Timeouts(attempt=3.0)), [lost(), read(AFTER, [])], Send(not_after=pytest.approx(AFTER + 5.01), attempt_timeout=3.0)),
    "absence at the last moment that it counts": (attrs.evolve(CREATE, policy=ReconcilePolicy(absence_within=16.0)), [lost(1.0, ended=1.5), attrs.evolve(read(16.5, []), ended=17.0)], Send),
    "claimed by another": (CREATE, [lost(), read(AFTER, [hook()], claimed_by_others=frozenset({"wh_1"}))], Send),
    "another's tag": (CREATE, [lost(), read(AFTER, [hook(description=OTHERS_TAG)])], Send),
    "the caller's own text from long before": (OWN_TEXT, [lost(), read(AFTER, [hook(-500, description="mine-17")])], Send),
    "the caller's own text, claimed by another": (OWN_TEXT, [lost(), read(AFTER, [hook(id="wh_1", description="mine-17")], claimed_by_others=frozenset({"wh_1"}))], Send),
    "created before": (CREATE, [lost(), read(AFTER, [hook(-1.1)])], Send),
    "near match, created long after": (CREATE, [lost(), read(20.0, [hook(15.9, events=[])])], Send),
    "another address": (CREATE, [lost(), read(AFTER, [hook(url="https://other.example", description="x")])], Send),
    "journey as its baseline": (DRAFT, [lost(), read(AFTER, JOURNEY)], Send),
    "journey as its baseline, placed by nothing": (PLACED_BY_NOTHING, [lost(), read(AFTER, journey(last_updated=5000), stamp=None)], Send),
    "journey that shows a text where null was sent": (attrs.evolve(DRAFT, body={"description": None}, baseline=journey(last_updated=stamp(-1.1))), [lost(), read(AFTER, journey(description="x", last_updated=stamp(-1.1)))], Send),
    "journey as wanted, dated a little later than its baseline, by a read that may lag": (attrs.evolve(DRAFT, baseline=journey(name="other", last_updated=stamp(-0.15)), baseline_at=AHEAD - 0.02), [lost(), read(0.02, journey(name="mine", last_updated=stamp(-0.05)))], Wait),
    "journey updated before": (attrs.evolve(DRAFT, baseline=None), [lost(), read(AFTER, journey(name="x", last_updated=stamp(-1.1)))], Send),
    "journey equal after its baseline and before the send": (DRAFT, [lost(), read(0.1, journey(name="mine", last_updated=stamp(-1.1)))], Wait),
    "journey equal at no known time": (attrs.evolve(DRAFT, baseline_at=AHEAD - 1), [lost(), read(0.1, journey(name="mine", last_updated=None))], Wait),
    "delete of a new one, not there yet": (NEW_DELETE, [lost(), read(0.1, status=404)], Wait),
    "delete of a new one, there by now": (NEW_DELETE, [lost(), read(0.1, status=404), read(AFTER, HOOK)], Send),
    "delete, still there": (DELETE, [lost(), read(AFTER, HOOK)], Send),
    "update as its baseline, though the read before it failed": (UPDATE, [failed(-0.1), lost(), read(AFTER, HOOK)], Send),
    "update as it was read before it": (attrs.evolve(UPDATE, baseline=None), [Tick(-0.2), read(-0.1, HOOK), lost(), read(AFTER, HOOK)], Send),
    "own reader says absent": (attrs.evolve(TEAM, reader="r"), [lost(), found(AFTER, Absent())], Send),
    "echo: read": (DELETE, [lost(), read(AFTER, HOOK), answered(404, 16)], Read),
    "re-sent create answered: audit": (CREATE, [lost(), read(AFTER, []), ok(16)], Read),
    "own reader's create re-sent, found in its window: wait": (attrs.evolve(TEAM, reader="r"), [lost(), found(AFTER, Absent()), lost(16), found(16.1, Applied(1))], Wait(pytest.approx(31.01 - 16.11))),
    "re-sent create found in its window: wait": (CREATE, [lost(), read(AFTER, []), lost(16), read(16.1, [hook(16.0)])], Wait(pytest.approx(31.01 - 16.11))),
    "re-sent create found in its window, then a failed read: wait": (CREATE, [lost(), read(AFTER, []), lost(16), read(16.1, [hook(16.0)]), failed(17.0)], Wait(pytest.approx(31.01 - 17.01))),
}  # fmt: skip


@pytest.mark.parametrize(("of", "history", "expected"), GOES_ON.values(), ids=GOES_ON)
def test_next_step(of, history, expected):
    """The decision is to continue, in this way."""
    decision = next_of(of, *history)
    if isinstance(expected, type):
        assert isinstance(decision, expected), decision
    else:
        assert decision == expected


def sent(start=0.0, end=None, timeout=30.0):
    return Sent(
        earliest=start + AHEAD, latest=start + AHEAD, attempt_timeout=timeout, end=end
    )


ABANDONED = attrs.evolve(CREATE, sent=(sent(),))
ENDED = attrs.evolve(
    CREATE, sent=(sent(end=SentEnd(kind="short", latest=AHEAD + 0.01)),)
)
ENDED_UPDATE = attrs.evolve(UPDATE, sent=ENDED.sent)
UNDATED = attrs.evolve(CREATE, sent=(Sent(attempt_timeout=30.0),))
RESTORED = attrs.evolve(ENDED, sent=(*ENDED.sent, Sent(attempt_timeout=30.0)))
LONG_END = SentEnd(kind="long", earliest=AHEAD + 0.005, latest=AHEAD + 0.01)
LEFT_UPDATE = attrs.evolve(UPDATE, sent=(sent(end=LONG_END),))
LEFT_DRAFT = attrs.evolve(DRAFT, sent=(sent(end=LONG_END),))
DATED = journey(last_updated=stamp(-70.0017))
LEFT_DATED = attrs.evolve(LEFT_DRAFT, baseline=DATED)
YES = sent(end=SentEnd(kind="applied"))
ANSWERED_BEFORE = attrs.evolve(CREATE, sent=(YES,))
LEFT_PUT = attrs.evolve(
    LEFT_UPDATE,
    operation="client.write",
    path={"method": "PUT", "path": "/x"},
    reader="r",
)
LEFT_POST = attrs.evolve(LEFT_PUT, path={"method": "POST", "path": "/x"})
NO = sent(end=SentEnd(kind="not applied"))

# Of a run that goes on with the write, after one with the settings of the intent.
SAFER = safety_of(ReconcilePolicy(settle_after_loss=60.0))
BRIEF_UPDATE = attrs.evolve(LEFT_UPDATE, policy=ReconcilePolicy(settle_after_loss=0.3))

TAKEN_UP = {
    "nothing sent, by a journal": (CREATE, [Resumed(at=100.0, journaled=True), read(100.1, [])], Send),
    "nothing known to be sent": (CREATE, [Resumed(at=100.0), read(150.0, [])], Verdict.UNKNOWN),
    "found": (ABANDONED, [Resumed(at=1.0), read(1.1, [hook()])], Verdict.APPLIED),
    "restored, made after all known sends": (RESTORED, [Resumed(at=1000.0), read(1100.0, [hook(500.0)])], Verdict.UNKNOWN),
    "restored, made in the window of a known send": (RESTORED, [Resumed(at=1000.0), read(1100.0, [hook()])], Verdict.APPLIED),
    "long over by the service's clock": (ABANDONED, [Resumed(at=100.0), read(100.1, [])], Send),
    "in the window by the service's clock": (ABANDONED, [Resumed(at=20.0), read(20.1, [])], Wait),
    "short window known, over": (ENDED_UPDATE, [Resumed(at=6.0, newest=True), read(6.1, HOOK)], Send),
    "short end of a create known, long window open": (ENDED, [Resumed(at=3.0), read(3.1, [])], Wait),
    "short end of a create known, long window over": (ENDED, [Resumed(at=15.3), read(15.4, [])], Send),
    "short window known, open": (ENDED, [Resumed(at=1.0), read(1.1, [])], Wait),
    "no stamps: waited out": (attrs.evolve(ABANDONED, policy=ReconcilePolicy(absence_within=9e9)), [Resumed(at=100.0), read(144.9, [], stamp=None)], Wait),
    "no stamps, past attempt and window, but undated": (UNDATED, [Resumed(at=100.0), read(145.1, [])], Verdict.UNKNOWN),
    "sender gone, window not over": (UNDATED, [Resumed(at=100.0, sender_gone=True), read(114.9, [hook(-1, events=[])])], Wait),
    "sender gone, window over": (UNDATED, [Resumed(at=100.0, sender_gone=True), read(115.1, [hook(-1, events=[])])], Verdict.UNKNOWN),
    "absent too long ago": (attrs.evolve(ABANDONED, sent=(sent(-700.0),)), [Resumed(at=0.0), read(0.1, [])], Verdict.UNKNOWN),
    "definite noes only": (attrs.evolve(CREATE, sent=(sent(end=SentEnd(kind="not applied")),)), [Resumed(at=1.0), read(1.1, [])], Send),
    "answered before the restart": (attrs.evolve(CREATE, sent=(sent(end=SentEnd(kind="applied")),)), [Resumed(at=1.0), read(1.1, [])], Verdict.APPLIED),
    "answered before the restart: a read for its value": (ANSWERED_BEFORE, [Resumed(at=1.0)], Read),
    "answered before the restart, and the read failed": (ANSWERED_BEFORE, [Resumed(at=1.0), failed(1.1)], Verdict.APPLIED),
    "answered before the restart, without a reader": (attrs.evolve(TEAM, sent=(YES,)), [Resumed(at=1.0)], Verdict.APPLIED),
    "equal, created after the send was over": (ABANDONED, [Resumed(at=100.0), read(100.1, [hook(90.0)])], Verdict.UNKNOWN),
    "near, created after the send was over": (ABANDONED, [Resumed(at=100.0), read(100.1, [hook(90.0, events=[])])], Send),
    "undated, created after all was over": (UNDATED, [Resumed(at=100.0), read(151.0, [hook(150.0)])], Verdict.UNKNOWN),
    "undated, created before all was over": (UNDATED, [Resumed(at=100.0), read(151.0, [hook(140.0)])], Verdict.UNKNOWN),
    "sent at no known latest": (attrs.evolve(CREATE, sent=(Sent(earliest=AHEAD, attempt_timeout=30.0),)), [Resumed(at=1.0), read(1.1, [hook()])], Wait),
    "shown by the proof, so not of the second send": (ABANDONED, [Resumed(at=300.0), read(300.1, [hook(300.0)]), lost(300.2), read(300.3, [hook(300.0)])], Wait),
    "shown by the proof, and nothing else": (ABANDONED, [Resumed(at=300.0), read(300.1, [hook(300.0)]), lost(300.2), read(315.3, [hook(300.0)])], Verdict.NOT_APPLIED),
    "shown by a proof of the process before": (attrs.evolve(ABANDONED, strangers=("wh_1",)), [Resumed(at=1.0), read(1.1, [hook()])], Wait),
    # what a later write of this program may have done
    "as its baseline, in the slot of its line": (LEFT_UPDATE, [Resumed(at=1.0), read(16.25, HOOK)], Send),
    "as its baseline, just after the slot": (LEFT_UPDATE, [Resumed(at=1.0), read(16.26, HOOK)], Verdict.UNKNOWN),
    "as its baseline, unstamped": (LEFT_UPDATE, [Resumed(at=1.0), read(50.0, HOOK, stamp=None)], Verdict.UNKNOWN),
    "as its baseline, after the slot, and the newest": (LEFT_UPDATE, [Resumed(at=50.0, newest=True), read(60.0, HOOK)], Send),
    "as its baseline, in the slot, and overtaken": (LEFT_UPDATE, [Resumed(at=1.0, newest=False), read(16.25, HOOK)], Verdict.UNKNOWN),
    "as its baseline, and no end is known": (attrs.evolve(LEFT_UPDATE, sent=(sent(),)), [Resumed(at=1.0), read(46.0, HOOK)], Verdict.UNKNOWN),
    "neither nor, two reads, after the slot": (LEFT_UPDATE, [Resumed(at=20.0), read(20.1, HOOK), read(100.0, OTHER_HOOK)], Verdict.UNKNOWN),
    "neither nor, two reads, and the newest": (LEFT_UPDATE, [Resumed(at=1.0, newest=True), read(8.0, HOOK), read(100.0, OTHER_HOOK)], Verdict.SUPERSEDED),
    "gone, after a read that showed it, after the slot": (LEFT_UPDATE, [Resumed(at=20.0), read(1.1, HOOK), read(100.0, status=404)], Verdict.UNKNOWN),
    "gone, after a read that showed it, and the newest": (LEFT_UPDATE, [Resumed(at=1.0, newest=True), read(8.0, HOOK), read(100.0, status=404)], Verdict.SUPERSEDED),
    "journey changed after, after the slot": (LEFT_DRAFT, [Resumed(at=20.0), read(100.0, journey(name="x", last_updated=stamp(50)))], Verdict.UNKNOWN),
    "journey changed after, in the slot": (LEFT_DRAFT, [Resumed(at=1.0), read(16.0, journey(name="x", last_updated=stamp(10)))], Verdict.SUPERSEDED),
    "journey changed after, and the newest": (LEFT_DRAFT, [Resumed(at=1.0, newest=True), read(100.0, journey(name="x", last_updated=stamp(50)))], Verdict.SUPERSEDED),
    "journey changed after, and overtaken": (LEFT_DRAFT, [Resumed(at=1.0, newest=False), read(16.0, journey(name="x", last_updated=stamp(10)))], Verdict.UNKNOWN),
    "journey as its baseline, and overtaken": (LEFT_DATED, [Resumed(at=1.0, newest=False), read(100.0, DATED)], Verdict.NOT_APPLIED),
    "journey as its baseline, dated in seconds, and overtaken": (LEFT_DRAFT, [Resumed(at=1.0, newest=False), read(100.0, JOURNEY)], Verdict.UNKNOWN),
    "journey as its baseline, dated to the day, and overtaken": (attrs.evolve(LEFT_DRAFT, baseline=journey(last_updated=0)), [Resumed(at=1.0, newest=False), read(100.0, journey(last_updated=0))], Verdict.UNKNOWN),
    "journey, and the service's clock stepped back before the send": (LEFT_DRAFT, [Resumed(at=1.0, newest=True), read(50.0, journey(name="x", last_updated=stamp(-7)), stamp=stamp(-5))], Verdict.UNKNOWN),
    "journey, and the answer is as old as the send can be": (LEFT_DRAFT, [Resumed(at=1.0, newest=True), read(50.0, journey(name="x", last_updated=stamp(-7)), stamp=stamp(-0.25))], Send),
    "absent create, and another since": (ABANDONED, [Resumed(at=100.0, newest=False), read(100.1, [])], Send),
    "nothing sent, and overtaken": (DRAFT, [Resumed(at=100.0, journaled=True, newest=False), read(100.1, JOURNEY)], Verdict.NOT_APPLIED),
    "journey as its baseline, in the slot": (LEFT_DRAFT, [Resumed(at=1.0), read(16.0, JOURNEY)], Send),
    "journey as its baseline, after the slot": (LEFT_DATED, [Resumed(at=50.0), read(60.0, DATED)], Verdict.NOT_APPLIED),
    "journey as its baseline, after the slot, and the newest": (LEFT_DRAFT, [Resumed(at=50.0, newest=True), read(60.0, JOURNEY)], Send),
    "own reader says absent": (LEFT_PUT, [Resumed(at=1.0), found(16.0, Absent())], Verdict.UNKNOWN),
    "own reader says absent, and overtaken": (LEFT_PUT, [Resumed(at=1.0, newest=False), found(16.0, Absent())], Verdict.UNKNOWN),
    "own reader says absent, and the newest": (LEFT_PUT, [Resumed(at=1.0, newest=True), found(16.0, Absent())], Send),
    "own reader says that a create is absent": (LEFT_POST, [Resumed(at=1.0), found(16.0, Absent(), BOUNDS)], Send),
    "own reader says that a create is absent, too late": (LEFT_POST, [Resumed(at=590.0), found(606.0, Absent(), BOUNDS)], Verdict.UNKNOWN),
    "own reader says that a create is absent, at an unknown time": (LEFT_POST, [Resumed(at=1.0), found(16.0, Absent())], Verdict.UNKNOWN),
    "own reader says that a PUT is absent, too late": (LEFT_PUT, [Resumed(at=590.0, newest=True), found(606.0, Absent(), BOUNDS)], Send),
    "definite noes only, of an update without a reader": (attrs.evolve(LEFT_PUT, reader=None, sent=(NO,)), [Resumed(at=1.0)], Verdict.NOT_APPLIED),
    "absent, and only settled": (ABANDONED, [Resumed(at=100.0, reads_only=True), read(100.1, [])], Verdict.NOT_APPLIED),
    "nothing sent, and only settled": (CREATE, [Resumed(at=100.0, journaled=True, reads_only=True), read(100.1, [])], Verdict.NOT_APPLIED),
    "found, and only settled": (ABANDONED, [Resumed(at=1.0, reads_only=True), read(1.1, [hook()])], Verdict.APPLIED),
    "closed while it is settled": (ABANDONED, [Resumed(at=1.0), Closed(2.0)], Verdict.UNKNOWN),
    "sender gone since before": (UNDATED, [Resumed(at=100.0, sender_gone=True, since=90.0), read(105.1, [hook(-1, events=[])])], Verdict.UNKNOWN),
    "sender gone since before, window not over": (UNDATED, [Resumed(at=100.0, sender_gone=True, since=90.0), read(104.9, [hook(-1, events=[])])], Wait),
    "by a run with longer windows: over by those of the send before": (ABANDONED, [Resumed(at=50.0, safety=SAFER), read(50.1, [])], Send),
    "by a run with longer windows: created after those of the send before": (ABANDONED, [Resumed(at=100.0, safety=SAFER), read(100.1, [hook(50.0)])], Verdict.UNKNOWN),
    "by a run with longer windows: after the slot of the sender before": (LEFT_UPDATE, [Resumed(at=1.0, safety=SAFER), read(16.26, HOOK)], Verdict.UNKNOWN),
    "by a run with longer windows: its own send, in them": (LEFT_UPDATE, [Resumed(at=20.0, newest=True, safety=SAFER), read(20.1, HOOK), lost(20.2), read(60.0, HOOK)], Wait),
    "by a run with longer windows: its own send, after them": (LEFT_UPDATE, [Resumed(at=20.0, newest=True, safety=SAFER), read(20.1, HOOK), lost(20.2), read(81.0, HOOK)], Verdict.NOT_APPLIED),
    "by a run with longer windows: its own send, after the slot of the sender before": (BRIEF_UPDATE, [Resumed(at=0.1, safety=SAFER), read(0.6, HOOK), lost(0.7), read(60.95, HOOK)], Verdict.UNKNOWN),
    "by a run with longer windows: they do not fit in the deadline": (attrs.evolve(LEFT_UPDATE, policy=ReconcilePolicy(deadline=60.0)), [Resumed(at=20.0, newest=True, safety=SAFER), read(20.1, HOOK)], Verdict.NOT_APPLIED),
    "by a run with longer windows: a send that an older copy lacks": (UNDATED, [Resumed(at=100.0, sender_gone=True, safety=SAFER), read(130.0, [hook(-1, events=[])])], Wait),
    "deadline counts from here": (ABANDONED, [Resumed(at=100.0), failed(190.1)], Verdict.UNKNOWN),
}  # fmt: skip


@pytest.mark.parametrize(("sends", "basis"), [((), "never sent"), ((NO,), "none")])
def test_basis_of_what_is_overtaken_before_this_run_sends_it(sends, basis):
    """An earlier process may have sent it without an effect: then it is not told as never sent."""
    of = attrs.evolve(DRAFT, sent=sends)
    decision = next_of(
        of, Resumed(at=100.0, journaled=True, newest=False), read(100.1, JOURNEY)
    )
    assert (decision.verdict, decision.evidence.basis) == (Verdict.NOT_APPLIED, basis)


@pytest.mark.parametrize(("of", "history", "expected"), TAKEN_UP.values(), ids=TAKEN_UP)
def test_taken_up_again(of, history, expected):
    """What another process left is judged by server times, or by waiting out the full windows."""
    decision = next_of(of, *history)
    if isinstance(expected, Verdict):
        assert isinstance(decision, Done), decision
        assert decision.verdict is expected
    else:
        assert isinstance(decision, expected), decision


VALUES = {
    "answered": (CREATE, [ok()], {"id": "wh_9"}),
    "answered when sent again": (UPDATE, [lost(), read(AFTER, HOOK), ok(16)], {"id": "wh_9"}),
    "answered when sent again, audit failed": (CREATE, [lost(), read(AFTER, []), ok(16), failed(16.1)], {"id": "wh_9"}),
    "already so": (attrs.evolve(DRAFT, baseline=None), [lost(), read(AFTER, journey(name="mine"))], journey(name="mine")),
    "journey shown": (DRAFT, [lost(), read(0.1, journey(name="mine"))], journey(name="mine")),
    "update shown": (UPDATE, [lost(), read(0.1, {**HOOK, "description": "mine"})], {**HOOK, "description": "mine"}),
    "update already so": (attrs.evolve(UPDATE, body={"description": "before"}), [lost(), read(AFTER, HOOK)], HOOK),
    "create matched": (CREATE, [lost(), read(0.1, [hook()])], hook()),
    "create tagged": (TAGGED, [lost(), read(0.1, [hook(description=TAG)])], hook(description=TAG)),
    "deleted": (DELETE, [lost(), read(0.1, status=404)], {"id": "wh_1"}),
    "answered before the restart, shown": (attrs.evolve(TAGGED, sent=(YES,)), [Resumed(at=1.0), read(1.1, [hook(description=TAG)])], hook(description=TAG)),
    "answered before the restart, perhaps shown": (ANSWERED_BEFORE, [Resumed(at=1.0), read(1.1, [hook()])], None),
    "answered before the restart, already so": (attrs.evolve(DRAFT, baseline=None, sent=(YES,)), [Resumed(at=1.0), read(1.1, journey(name="mine"))], journey(name="mine")),
    "answered before the restart, not shown": (ANSWERED_BEFORE, [Resumed(at=1.0), read(1.1, [])], None),
}  # fmt: skip


@pytest.mark.parametrize(("of", "history", "value"), VALUES.values(), ids=VALUES)
def test_value_of_what_is_applied(of, history, value):
    """The value is the service's answer, or what the read showed."""
    decision = next_of(of, *history)
    assert isinstance(decision, Done), decision
    assert (decision.verdict, decision.value) == (Verdict.APPLIED, value)


def test_duplicates_by_tag_are_told():
    """Of several webhooks with our tag the first is ours; the others are duplicates."""
    tagged = [hook(id=name, description=TAG) for name in ("wh_1", "wh_2", "wh_3")]
    decision = next_of(TAGGED, lost(), read(0.1, tagged))
    assert decision.value == tagged[0]
    assert decision.evidence.duplicates == tuple(tagged[1:])


@pytest.mark.parametrize(
    ("latest", "milliseconds", "answered_at", "placed"),
    [
        (1000.5, 999_748, 2_000_000, "before"),
        # of a millisecond, only the beginning is before
        (1000.5, 999_749, 2_000_000, "band"),
        (1000.5, 1_000_750, 2_000_000, "band"),
        (1000.5, 1_000_751, 2_000_000, "after"),
        (1000.75, 1_000_000, 2_000_000, "unsure"),
        (1000.5, None, 2_000_000, "unsure"),
        (1000.5, True, 2_000_000, "unsure"),
        (None, 1_000_000, 2_000_000, "unsure"),
        (1000.5, 1_005_250, 1_005_000, "after"),
        (1000.5, 1_005_251, 1_005_000, "unsure"),
        (1000.5, 999_001, 999_750, "before"),
        (1000.5, 999_001, 999_749, "unsure"),
        (1000.5, 999_001, None, "unsure"),
        (1000.5, 999_000, 2_000_000, "unsure"),  # a whole second may be truncated
        (1000.5, Decimal("999000.0"), 2_000_000, "unsure"),
        (1000.5, 998_000, 2_000_000, "before"),
    ],
)
def test_time_placed_against_the_first_send(latest, milliseconds, answered_at, placed):
    """
    The slack widens the band on both sides. A slack wider than the policy's proves nothing, nor does a time
    later than the answer's own, or an answer from before the send. A whole second stands for all of it.
    """
    first = Sent(earliest=1000.0, latest=latest, attempt_timeout=30.0)
    reading = read(5.0, [], stamp=answered_at)
    known = Known(
        BY_NAME["webhooks.create"],
        attrs.evolve(CREATE, sent=(first,)),
        (Resumed(at=0.0),),
    )
    assert known.windows.when(milliseconds, reading) == placed


@pytest.mark.parametrize(("at", "placed"), [(1.26, "after"), (1.27, "unsure")])
def test_time_placed_without_a_stamp(at, placed):
    """Without a time in the answer, the end of the read bounds it, by the clock bounds."""
    reading = read(1.0, JOURNEY, stamp=None)
    known = Known(BY_NAME["journeys.update"], DRAFT, (lost(), reading))
    assert known.windows.when(stamp(at), reading) == placed


@pytest.mark.parametrize(
    ("of", "history", "expected"),
    [
        (CREATE, [ok()], float("-inf")),
        (CREATE, [lost(ended=0.5)], 15.5 + 0.5 + 1.0),
        (UPDATE, [answered(500, ended=0.5)], 5.5 + 0.5 + 1.0),
        (CREATE, [answered(500, ended=0.5)], 15.5 + 0.5 + 1.0),
        (attrs.evolve(CREATE, bounds=None), [lost(ended=0.5)], 15.5 + 0.5 + 1.0),
        (attrs.evolve(CREATE, bounds=Bounds(low=0.0, high=6.0)), [lost(ended=0.5)], 15.5 + 0.5 + 6.0),
        (attrs.evolve(CREATE, bounds=Bounds(low=0.0, high=2000.0)), [lost(ended=0.5), read(1.0, [])], 15.5 + 0.5 + 2000.0),
        (attrs.evolve(CREATE, sent=(Sent(earliest=1.0, latest=8.0, attempt_timeout=30.0),)), [Resumed(at=100.0, sender_gone=True)], 145.0 + 0.5 + 7.0),
    ],
)  # fmt: skip
def test_next_write_of_the_line(of, history, expected):
    """It is free after the windows, two slacks, and the widest bounds that a judge may use."""
    known = Known(BY_NAME[of.operation], of, tuple(history))
    assert free_at(known) == pytest.approx(expected)


def test_absence_after_a_restart_at_the_last_moment_that_it_counts():
    """It decays from the earliest time of the first send to the latest time of the read."""
    reading = read(100.1, [])
    known = Known(BY_NAME["webhooks.create"], ABANDONED, (Resumed(at=100.0), reading))
    age = reading.ended + known.clock.bounds.high - ABANDONED.sent[0].earliest
    for within, has_decayed in ((age, False), (age - 0.001, True)):
        of = attrs.evolve(ABANDONED, policy=ReconcilePolicy(absence_within=within))
        assert (
            decayed(Known(known.operation, of, known.history), reading) is has_decayed
        )


def test_duplicates_of_an_audited_create_are_told():
    """Two exact webhooks for two sends: applied, with the second as a duplicate."""
    history = [
        lost(),
        read(AFTER, []),
        ok(16),
        read(16.1, [hook(16.0, id="wh_2"), hook(15.5, id="wh_1")]),
    ]
    decision = next_of(CREATE, *history)
    assert decision.value["id"] == "wh_1"
    assert [each["id"] for each in decision.evidence.duplicates] == ["wh_2"]


def test_failed_audit_leaves_duplicates_unknown():
    """None means that nobody looked."""
    decision = next_of(CREATE, lost(), read(AFTER, []), ok(16), failed(16.1))
    assert decision.evidence.duplicates is None


def test_failed_audit_of_a_create_that_was_shown():
    """The earlier read gives the value, but its duplicates may not be all."""
    history = [
        lost(),
        read(AFTER, []),
        lost(16),
        read(16.1, [hook(16.0)]),
        failed(31.1),
    ]
    decision = next_of(CREATE, *history)
    assert (decision.verdict, decision.value) == (Verdict.APPLIED, hook(16.0))
    assert decision.evidence.duplicates is None


NEVER = attrs.evolve(CREATE, policy=ReconcilePolicy(resend="never"))
ABSENT = [lost(), read(AFTER, [])]
NOT_RESENT = {
    "resend='never'": (NEVER, ABSENT),
    "max_resends=0": (attrs.evolve(CREATE, policy=ReconcilePolicy(max_resends=0)), ABSENT),
    "max_resends=1": (CREATE, [*ABSENT, lost(16), read(32, [])]),
    "no byte left this machine in 4 attempts": (CREATE, [lost(), *map(not_sent, (1, 2, 3, 4)), read(AFTER, [])]),
    "too little of the deadline of 40 s is left": (attrs.evolve(CREATE, policy=ReconcilePolicy(deadline=40.0)), ABSENT),
    "did not exist before the write": (
        attrs.evolve(UPDATE, baseline={}, policy=ReconcilePolicy(reads_lag=0.0)),
        [lost(), read(AFTER, status=404)],
    ),
    "settling only reads": (
        attrs.evolve(ABANDONED, policy=NEVER.policy),
        [Resumed(at=100.0, reads_only=True), read(100.1, [])],
    ),
    "a newer write of this program to the same resource was sent": (LEFT_DATED, [Resumed(at=1.0, newest=False), read(100.0, DATED)]),
    "a newer write of this program to the same resource may have been sent": (
        attrs.evolve(DELETE, sent=LEFT_UPDATE.sent, policy=NEVER.policy),
        [Resumed(at=1.0), read(100.0, HOOK)],
    ),
}  # fmt: skip
OVERTAKEN = {"was sent": "overtaken", "may have been sent": "perhaps overtaken"}


@pytest.mark.parametrize("why", NOT_RESENT)
def test_reason_why_an_absent_write_is_not_sent_again(why):
    """The message of NOT_APPLIED names the setting or the fact that prevents another send."""
    of, history = NOT_RESENT[why]
    decision = next_of(of, *history)

    cause = OVERTAKEN.get(why.partition("same resource ")[2], "absent")
    assert (decision.verdict, decision.evidence.cause) == (Verdict.NOT_APPLIED, cause)
    assert why in decision.reason.partition("not sent again, because ")[2]


@pytest.mark.parametrize("after", [Tick(AFTER + 1), Closed(AFTER + 1)])
@pytest.mark.parametrize(
    ("answer", "verdict"),
    [(ok(AFTER + 0.1), Verdict.APPLIED), (answered(400, AFTER + 0.1), Verdict.REFUSED)],
)
@pytest.mark.parametrize(
    ("of", "seen"), [(UPDATE, HOOK), (DRAFT, JOURNEY), (DELETE, HOOK)]
)
def test_answer_to_a_resend_stays_conclusive(of, seen, answer, verdict, after):
    """A definite answer decides, even if the awaiter was cancelled before it was told, and awaits again."""
    decision = next_of(of, lost(), read(AFTER, seen), answer, after)
    assert isinstance(decision, Done), decision
    assert (decision.verdict, decision.evidence.basis) == (verdict, "answered")


@pytest.mark.parametrize("of", [CREATE, MADE_BY_READER])
def test_answer_to_a_create_sent_again_outlives_a_close(of):
    """The read for duplicates cannot follow any more: whether there are any is not known."""
    absent = read(AFTER, []) if of is CREATE else found(AFTER, Absent())
    decision = next_of(of, lost(), absent, ok(AFTER + 0.1), Closed(AFTER + 1))
    assert isinstance(decision, Done)
    assert (decision.verdict, decision.evidence.basis) == (Verdict.APPLIED, "answered")
    assert (decision.value, decision.evidence.duplicates) == ({"id": "wh_9"}, None)


@pytest.mark.parametrize("of", [CREATE, UPDATE, DRAFT, DELETE])
def test_answer_of_an_earlier_process_outlives_a_close(of):
    """The read for its value cannot follow any more."""
    answered_before = attrs.evolve(of, sent=(YES,))
    decision = next_of(answered_before, Resumed(at=1.0, journaled=True), Closed(1.5))
    assert isinstance(decision, Done)
    assert (decision.verdict, decision.evidence.basis) == (Verdict.APPLIED, "answered")


def test_candidates_are_in_the_evidence():
    """The caller gets the webhooks that may be ours."""
    near = hook(events=["payment.created"])
    assert next_of(CREATE, lost(), read(AFTER, [near])).evidence.candidates == (near,)


def test_clocks_that_exclude_each_other_are_unknown():
    """After a step of the service's clock, a webhook's time proves nothing, not even that it is older."""
    stepped = read(AFTER, [hook(-1.1)], stamp=stamp(AFTER + 3600))
    decision = next_of(CREATE, lost(), stepped)
    assert (decision.verdict, len(decision.evidence.candidates)) == (Verdict.UNKNOWN, 1)


@pytest.mark.parametrize(
    ("history", "cause"),
    [
        ([not_sent(at) for at in (0.3, 0.5, 1.1, 3.2)], "never left"),
        (
            [limited(retry_after=0.1), *map(not_sent, (0.3, 0.5, 1.1, 3.2))],
            "not sent again",
        ),
        ([limited(retry_after=0.1), not_sent(0.3), not_sent(61)], "not sent again"),
    ],
)
def test_cause_of_what_could_not_be_sent(history, cause):
    """It never left only if no request of it did: not after one that was answered."""
    assert next_of(PATIENT, *history).evidence.cause == cause


def test_words_of_every_decision():
    """The texts of all rows above are in a file beside this one, for review."""
    rows = {f"verdict: {name}": row[:2] for name, row in VERDICTS.items()}
    rows |= {f"next: {name}": row[:2] for name, row in GOES_ON.items()}
    rows |= {f"taken up: {name}": row[:2] for name, row in TAKEN_UP.items()}
    said = {name: words(next_of(of, *history)) for name, (of, history) in rows.items()}
    assert said == json.loads(WORDS.read_text())


WORDS = Path(__file__).with_name("words.json")


def words(decision):
    match decision:
        case Done(reason=reason, evidence=evidence):
            until = evidence.window_until and round(evidence.window_until, 3)
            read_at = evidence.read_at and round(evidence.read_at, 3)
            return [
                reason,
                f"{evidence.basis}, read at {read_at}, window until {until}, duplicates {evidence.duplicates}",
            ]
        case Read(reader=reader, why=why):
            return [reader, why]
        case Send(not_after=not_after, attempt_timeout=timeout):
            return [
                "send",
                f"not after {not_after and round(not_after, 3)}, within {timeout:.3f} s",
            ]
        case Wait(seconds):
            return ["wait", f"{seconds:.3f} s"]
