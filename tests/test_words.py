"""What people are told: stories, decisions and reports in words, of the ends that are rarely met."""

from __future__ import annotations

import pickle
from collections import Counter
from decimal import Decimal

import attrs
import pytest

from invsvc_async.batch.reports.html import page_of
from invsvc_async.batch.reports.not_applied import Groups
from invsvc_async.batch.reports.summary import Report, failure_of
from invsvc_async.batch.result import Progress, Result, Summary
from invsvc_async.cli import progress as progress_bar
from invsvc_async.cli.commands import report as batch_report
from invsvc_async.cli.formatting import show
from invsvc_async.errors import ConfigurationError, InvalidRequestError
from invsvc_async.models import Preferences
from invsvc_async.reconcile import explain, json_form
from invsvc_async.reconcile.history import (  # fmt: skip
    Applied,
    Attempt,
    Bounds,
    Closed,
    End,
    ErrorFacts,
    Read,
    Reading,
    Resumed,
    Send,
    Tick,
    Verdict,
    Wait,
)
from invsvc_async.reconcile.intent import Intent, Scope
from invsvc_async.settings import ReconcilePolicy
from invsvc_async.writes.reporting import words_of

INTENT = Intent(
    key="row-17", operation="journeys.update", path={"id": "jrn_1"}, body={"name": "A"},
    scope=Scope(base_url="https://h.example/v2"), bounds=Bounds(low=0, high=0),
)  # fmt: skip
FAILED = ErrorFacts(kind="NotSentError", message="no route to the host")


def test_story_of_every_kind_of_event():
    """Each event is one line with its time since the first; the passing of time alone is none."""
    history = (
        Attempt(started=10.0, ended=10.1, end=End.NOT_SENT, error=FAILED),
        Attempt(started=11.0, ended=11.5, end=End.NOT_SENT),
        Attempt(started=12.0, ended=12.5, end=End.LOST),
        Tick(13.0),
        Resumed(at=14.0),
        Reading(started=15.0, ended=15.1, error=FAILED),
        Reading(started=16.0, ended=16.1, status=200, seen=[{}], raw_count=1),
        Reading(started=17.0, ended=17.1, finding=Applied("x")),
        Closed(18.0),
    )
    assert explain.tell(INTENT, history, "unknown", "nobody can tell").splitlines() == [
        "journeys.update, intent row-17",
        "     +0.000 s  not sent: no route to the host",
        "     +1.000 s  not sent: no byte left",
        "     +2.000 s  sent, answer lost after 0.500 s",
        "     +4.000 s  taken up from its intent: of the runs before, only the sends in it count",
        "     +5.000 s  read failed: no route to the host",
        "     +6.000 s  read the state: HTTP 200: 1 item",
        "     +7.000 s  the caller's reader found: Applied",
        "     +8.000 s  the client was closed",
        "  verdict: unknown - nobody can tell",
    ]


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (Send(attempt_timeout=30.0), ("send", "", None)),
        (
            Send(attempt_timeout=30.0, not_after=5.0),
            ("send", "again, on proof of absence", None),
        ),
        (
            Read(reader="journeys.get", why="its answer"),
            ("read", "journeys.get: its answer", None),
        ),
        (Wait(0.25), ("wait", "0.250 s", None)),
    ],
)
def test_decision_in_words(decision, words):
    """Each is told with what it waits for, reads or stands on."""
    assert words_of(decision) == words


def test_report_of_a_batch_that_has_not_begun(capsys):
    """It has counts and no timeline, on the page, as plain data and on a terminal."""
    report = Report(name="run.db", summary=Summary(to_do=3))
    assert "3 writes, 3 of them still open</p>" in page_of(report)
    assert "<svg" not in page_of(report)
    told = batch_report.plain(report)
    assert (told["total"], told["seconds"], told["seconds_to_verdict"]) == (
        3,
        0.0,
        {"median": 0.0, "p99": 0.0},
    )
    batch_report.show(report)
    shown = capsys.readouterr().out
    assert "3, 3 of them open" in shown
    assert "failures" not in shown
    assert "look at" not in shown


def test_report_of_more_unknown_writes_than_a_terminal_shows(capsys):
    """The first twenty are told with advice; how many more there are, and what to look at, is said."""
    unknown = [
        Result(key=f"row-{n}", operation="webhooks.create", verdict=Verdict.UNKNOWN)
        for n in range(23)
    ]
    groups = Groups()
    for each in unknown:
        groups.add(each)
    summary = Summary(verdicts={Verdict.UNKNOWN: 23})
    report = Report(
        name="run.db",
        summary=summary,
        groups=groups.sorted("run.db"),
        duplicates=1,
        lost=2,
        faults=Counter({"HTTP 500": 4}),
    )
    batch_report.show(report)
    shown = " ".join(capsys.readouterr().out.split())
    assert "row-19 (webhooks.create)" in shown
    assert "row-20" not in shown
    assert "and 3 more: invsvc batch report PLACE --jsonl FILE" in shown
    assert "4 x HTTP 500" in shown
    assert "1 duplicate effects, 2 lost webhook secrets" in shown


def test_report_of_more_lost_secrets_than_a_terminal_shows(capsys):
    """The first twenty are named, and where the others are."""
    lost = [
        Result(
            key=f"row-{n}",
            operation="webhooks.create",
            verdict=Verdict.APPLIED,
            thing=f"wh_{n}",
        )
        for n in range(22)
    ]
    batch_report.show(
        Report(name="run.db", summary=Summary(), lost=25, secrets_lost=lost)
    )
    shown = " ".join(capsys.readouterr().out.split())
    assert "row-19 (webhooks.create): wh_19" in shown
    assert "row-20" not in shown
    assert "and 5 more: invsvc batch report PLACE --jsonl FILE" in shown


def test_page_of_lost_secrets():
    """Each is named with its webhook, what to do is told, and where the others are."""
    lost = [
        Result(
            key=f"row-{n}",
            operation="webhooks.create",
            verdict=Verdict.APPLIED,
            thing=f"wh_{n}",
        )
        for n in range(3)
    ]
    page = page_of(Report(name="run.db", summary=Summary(), lost=5, secrets_lost=lost))
    assert "<h2>Secrets lost</h2>" in page
    for n in range(3):
        assert f"<td>row-{n}</td><td>wh_{n}</td>" in page
    assert "Otherwise replace the webhook" in page
    assert "And 2 more: invsvc batch report PLACE --jsonl FILE lists them all." in page
    assert "Secrets lost</h2>" not in page_of(Report(name="run.db", summary=Summary()))


def test_report_of_duplicates(capsys):
    """The page, the terminal and JSON name them, and not only how many they are."""
    twice = Result(
        key="row-1", operation="webhooks.create", verdict=Verdict.APPLIED, thing="wh_1",
        duplicates=("wh_2", "wh_3"),
    )  # fmt: skip
    report = Report(
        name="run.db", summary=Summary(), duplicates=3, second_effects=[twice]
    )
    page = page_of(report)
    assert "<td>row-1</td><td>wh_2, wh_3</td>" in page
    assert "And 1 more: invsvc batch report PLACE --jsonl FILE lists them all." in page
    batch_report.show(report)
    assert "  - row-1 (webhooks.create): wh_2, wh_3" in capsys.readouterr().out
    assert batch_report.plain(report)["duplicates"] == [
        {"key": "row-1", "webhooks": ["wh_2", "wh_3"]}
    ]


@pytest.mark.parametrize(
    ("status", "error", "told"),
    [
        (503, "ServerError: x", "HTTP 503"),
        (200, "UnreadableResponseError: x", "UnreadableResponseError (HTTP 200)"),
        (200, "ResponseLostError: x", "ResponseLostError (HTTP 200)"),
        (None, "NotSentError: x", "NotSentError"),
    ],
)
def test_failure_with_a_status_of_success(status, error, told):
    """A 200 is no failure: what failed is named."""
    result = Result(
        key="k",
        operation="webhooks.create",
        verdict=Verdict.APPLIED,
        error=error,
        status=status,
    )
    assert failure_of(result) == told
    assert failure_of(attrs.evolve(result, error=None, status=None)) is None


def test_bar_of_a_batch():
    """It tells what this run did from what was done before; the time left is that at the rate of this run."""
    progress = Progress(
        done=30,
        skipped=900,
        under_way=4,
        settling=2,
        rate=7.0,
        seconds=1.0,
        verdicts={Verdict.APPLIED: 30},
    )
    words = "930 of 1,000, about 10 s left, longer for lost answers"
    assert progress_bar._whole(progress, 1000) == words
    sending = attrs.evolve(progress, settling=0)
    assert progress_bar._whole(sending, 1000) == "930 of 1,000, about 10 s left"
    last = attrs.evolve(progress, done=98, skipped=900, settling=2)
    assert progress_bar._whole(last, 1000) == "998 of 1,000, only lost answers are left"
    assert (
        progress_bar._this_run(progress)
        == "this run: 30, 7/s; 30 applied; 900 were done before; 2 settling"
    )
    paused = attrs.evolve(
        progress, paused="it is away", next_probe=4.0, settling=0, skipped=0
    )
    assert progress_bar._whole(paused, 20) == "30 of 30"
    assert (
        progress_bar._this_run(paused)
        == "this run: 30, 7/s; 30 applied; paused: it is away, next probe in 4 s"
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"secret": "s3cr3t", "id": "wh_1"}, ["id", "wh_1"]),
        (5, ["value", "5"]),
        (Preferences(team_id="team_1"), ["team_id", "team_1"]),
    ],
    ids=["object", "number", "model"],
)
def test_thing_as_a_table(capsys, value, shown):
    """Whatever was read is two columns, and a secret is not among them."""
    show(value)
    out = capsys.readouterr().out
    assert all(each in out for each in shown)
    assert "s3cr3t" not in out


def test_intent_with_a_reader_of_the_callers_own_is_pickled():
    """The reader goes by its name, for a closure cannot be pickled; without one, nothing changes."""
    ours = attrs.evolve(INTENT, policy=ReconcilePolicy(journey_reader=lambda *_: None))
    back = _pickled(ours)
    assert isinstance(back.policy.journey_reader, str)
    assert attrs.evolve(back, policy=INTENT.policy) == INTENT
    assert _pickled(INTENT) == INTENT


def _pickled(intent):
    return pickle.loads(pickle.dumps(intent))  # noqa: S301 - our own


def test_intent_too_long_to_be_read():
    """It is refused before it is parsed."""
    with pytest.raises(
        InvalidRequestError, match="not an intent: the text is longer than"
    ):
        json_form.parsed(" " * (json_form.LONGEST + 1), "an intent")


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        (Preferences(team_id="team_1"), {"team_id": "team_1"}),
        (object, "<class 'object'>"),
        ([Decimal("1.50"), None], [Decimal("1.50"), None]),
    ],
    ids=["model", "no wire form", "plain"],
)
def test_finding_of_a_readers_own_value(found, kept):
    """A model goes back to its wire form; what has none is told by its repr."""
    event = Reading(started=0.0, ended=1.0, finding=Applied(found))
    assert json_form.event_to_wire(event)["finding"]["value"] == kept


def test_error_whose_words_would_move_a_cursor():
    """It is told in one line, what cannot be printed shown as such."""
    assert str(ConfigurationError("one\r\n\x1b[2Jtwo")) == "one \ufffd[2Jtwo"
