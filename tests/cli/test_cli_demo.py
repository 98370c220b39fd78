"""The demo shows the point, fails when it does not, and names bad lines before anything is sent."""

from __future__ import annotations

import json
import re

import attrs
import pytest

from invsvc_async.cli.columns import Column
from invsvc_async.cli.judge import Asked, Judgement, Report, Wrong
from invsvc_async.cli.report import _coloured, failures, tell
from invsvc_async.cli.workload import made_up, plan_for
from invsvc_async.reconcile.evidence import Verdict

ASKED = Asked(operation="webhooks.delete", path_id="wh_1", team="team_1", body="null")
LOST = Report(key="a", asked=ASKED, verdict=Verdict.APPLIED)
CLEAN = Judgement(
    asked=1000, effects=1000, duplicates=0, unasked=0, sends=1000, lost=(), wrong=(),
    verdicts={Verdict.APPLIED: 1000}, unknown_reasons={},
)  # fmt: skip


def columns(ours, theirs=None):
    both = {"ordinary": theirs or attrs.evolve(CLEAN, duplicates=9), "sdk": ours}
    return {name: Column(judgement=judged, reads=0, left=0, seconds=1.0) for name, judged in both.items()}


def test_demo_at_small_scale(offline):
    """Both columns add up; ours has no duplicate, lost write or wrong verdict, theirs has duplicates."""
    ran = offline("demo", "--writes", "48", "--seed", "3", "--json", "--faults",
                  "rate=0.4,reads=0,late=0.3,kinds=500+truncate+close,phases=after+late")  # fmt: skip
    told = json.loads(ran.out)
    ours, theirs = told["sdk"], told["ordinary"]

    assert (ran.code, told["failures"]) == (0, [])
    assert (ours["duplicates"], ours["lost"], ours["wrong"], ours["unasked"]) == (0, 0, [], 0)
    assert theirs["duplicates"] > 0
    assert theirs["new_webhooks_left"] > ours["new_webhooks_left"] == 0
    assert theirs["reads"] == 0
    for column in (ours, theirs):
        assert column["writes"] == sum(column["verdicts"].values()) == 48
        assert sum(column["unknown_reasons"].values()) == column["verdicts"]["unknown"]
    assert ours["effects"] == ours["verdicts"]["applied"] == 48


def test_demo_without_faults(offline):
    """Faults so mild that the ordinary client made no duplicate fail the demo, in the table's words."""
    ran = offline("demo", "--writes", "40", "--faults", "none")

    assert ran.code == 1
    assert "FAIL the faults were so mild" in ran.out
    assert "up to 3 tries on 5xx" in ran.out
    assert "1 s after a 500, 1.5 s after a lost answer" in ran.out


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        ({"duplicates": 1}, "1 duplicates"),
        ({"lost": (LOST,)}, "1 lost writes"),
        ({"wrong": (Wrong(report=LOST, why="x"),)}, "1 wrong verdicts"),
        ({"unasked": 2}, "2 effects that nobody asked for"),
        ({"verdicts": {Verdict.APPLIED: 989, Verdict.UNKNOWN: 11}}, "11 of 1000 writes unknown"),
    ],
)
def test_column_that_fails(ours, words):
    """Each thing that must not be in this client's column is named."""
    (failure,) = failures(columns(attrs.evolve(CLEAN, **ours)))

    assert words in failure


def test_column_at_the_bound_of_unknown():
    """One in a hundred may be unknown."""
    judged = attrs.evolve(CLEAN, verdicts={Verdict.APPLIED: 990, Verdict.UNKNOWN: 10})

    assert failures(columns(judged)) == []


def test_table_of_a_column_that_fails(capsys):
    """What should be nothing and is not is shown, with the story behind it."""
    report = attrs.evolve(LOST, story="it was never sent")
    judged = attrs.evolve(CLEAN, wrong=(Wrong(report=report, why="called applied"),))

    tell(columns(judged), ["invsvc_async has 1 wrong verdicts"])
    shown = capsys.readouterr().out

    assert re.search(r"wrong verdicts +\| +0\| +1\|", shown.replace(" | ", "| "))
    assert "called applied\nit was never sent\n" in shown
    assert "FAIL invsvc_async has 1 wrong verdicts" in shown
    assert "PASS" not in shown


@pytest.mark.parametrize(("number", "colour"), [("0", "green"), ("3", "red")])
def test_colour_of_what_should_be_nothing(number, colour):
    """Nothing is green, anything else red; other rows are plain."""
    assert colour in _coloured("duplicates", number)
    assert _coloured("sends that arrived", number) == number


@pytest.mark.parametrize("writes", [1, 3, 2000, 2001])
def test_writes_made_up(writes):
    """There are as many as asked for, each with a key and a value of its own, and no team's list fills."""
    units = made_up(writes, seed=1)
    steps = [step for unit in units for step in unit]
    plan = plan_for(units, seed=1, faults="none")
    per_team = [sum(hook.team == team for hook in plan.webhooks) for team in plan.teams]

    assert len(steps) == len({step.key for step in steps}) == writes
    values = [step.arguments.get("url") or step.arguments.get("name") or step.key for step in steps]
    assert len(set(values)) == writes
    assert all(count <= 25 for count in per_team)


def line(operation, key=None, **arguments):
    return json.dumps({"operation": operation, "arguments": arguments, "key": key})


def test_input_with_bad_lines(offline, here):
    """Every bad line is named with number and reason, and nothing is run."""
    file = here / "writes.jsonl"
    good = line("webhooks.delete", "k", webhook="wh_1")
    file.write_text("\n".join([
        good, "{", line("webhooks.create", url="x", events=["invoice.created"]), good, line("teams.create", "k"),
        line("client.write", method="POST", path="/x"),
    ]))  # fmt: skip

    ran = offline("demo", "--input", str(file))

    assert (ran.code, ran.out) == (2, "")
    assert [each.partition(":")[2].partition(":")[0].strip() for each in ran.err.splitlines()] == [
        "line 2", "line 3", "line 4", "line 5", "line 6",
    ]  # fmt: skip
    assert "is the same write as line 1" in ran.err
    assert "is the same key as line 1" in ran.err


def test_input_with_twins_of_the_home_team(offline, here):
    """Naming the credential's own team makes no other write: the second is named before anything runs."""
    twins = [{"webhook": "wh_1"}, {"webhook": "wh_1", "team": "team_1"}]
    (here / "twins.jsonl").write_text("\n".join(line("webhooks.delete", **each) for each in twins))

    ran = offline("demo", "--input", "twins.jsonl")

    assert (ran.code, ran.out) == (2, "")
    assert "line 2: is the same write as line 1" in ran.err


def test_input_without_a_write(offline, here):
    """An empty file is said to be one."""
    (here / "none.jsonl").write_text("\n\n")

    assert offline("demo", "--input", "none.jsonl").err == "invsvc: none.jsonl holds no write\n"


def test_input_that_is_run(offline, here):
    """A file's writes run in its order where they touch the same thing, which is there from the start."""
    file = here / "writes.jsonl"
    file.write_text("\n".join([
        line("webhooks.update", webhook="wh_mine", description="one", team="team_x"),
        line("webhooks.delete", webhook="wh_mine", team="team_x"),
        line("journeys.update", journey="jrn_mine", name="May"),
        line("webhooks.create", url="https://a.example", events=["invoice.created"], team="team_x"),
    ]))  # fmt: skip

    told = json.loads(offline("demo", "--input", str(file), "--faults", "none", "--json").out)

    assert told["sdk"]["verdicts"]["applied"] == told["ordinary"]["verdicts"]["applied"] == 4
    assert told["sdk"]["effects"] == told["ordinary"]["effects"] == 4
    assert told["sdk"]["wrong"] == []


def test_faults_that_are_not_understood(offline):
    """A fault plan that cannot be read is a matter of usage."""
    ran = offline("demo", "--faults", "rate=9")

    assert ran.code == 2
    assert "probability" in ran.err
