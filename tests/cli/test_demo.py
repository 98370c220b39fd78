"""The demo shows the point, fails when it does not, and names bad lines before anything is sent."""

from __future__ import annotations

import json
import re

import attrs
import pytest

from invsvc_async.cli.commands.conformance import failures, show
from invsvc_async.conformance.client_runs import ClientRun, run_client
from invsvc_async.conformance.judge import Judgement, Wrong
from invsvc_async.conformance.reports import RequestedWrite, WriteReport
from invsvc_async.conformance.service_process import embedded
from invsvc_async.conformance.workload import (
    WorkloadStep,
    made_up,
    plan_for,
    respelt,
    values,
)
from invsvc_async.reconcile.history import Verdict
from tests.cli.conftest import screened

pytestmark = pytest.mark.one_python

ASKED = RequestedWrite(
    operation="webhooks.delete", path_id="wh_1", team="team_1", body="null"
)
LOST = WriteReport(key="a", asked=ASKED, verdict=Verdict.APPLIED)
CLEAN = Judgement(
    asked=1000, effects=1000, duplicates=0, unasked=0, sends=1000, lost=(), wrong=(),
    verdicts={Verdict.APPLIED: 1000}, unknown_reasons={},
)  # fmt: skip


def columns(ours, theirs=None):
    both = {"ordinary": theirs or attrs.evolve(CLEAN, duplicates=9), "sdk": ours}
    return {
        name: ClientRun(judgement=judged, reads=0, left=0, seconds=1.0)
        for name, judged in both.items()
    }


def test_demo_at_small_scale(offline):
    """Both columns add up; ours has no duplicate, lost write or wrong verdict, theirs has duplicates."""
    ran = offline("demo", "--writes", "48", "--seed", "3", "--json", "--faults",
                  "rate=0.4,reads=0,late=0.3,kinds=500+truncate+close,phases=after+late")  # fmt: skip
    told = json.loads(ran.out)
    ours, theirs = told["sdk"], told["ordinary"]

    assert (ran.code, told["failures"]) == (0, [])
    assert (ours["duplicates"], ours["lost"], ours["wrong"], ours["unasked"]) == (
        0,
        0,
        [],
        0,
    )
    assert theirs["duplicates"] > 0
    # each block creates three
    assert theirs["new_webhooks_left"] > ours["new_webhooks_left"] == 9
    assert theirs["reads"] == 0
    for column in (ours, theirs):
        assert column["writes"] == sum(column["verdicts"].values()) == 48
        assert sum(column["unknown_reasons"].values()) == column["verdicts"]["unknown"]
    assert ours["effects"] == ours["verdicts"]["applied"] == 48


@pytest.mark.slow
def test_demo_without_faults(offline):
    """Faults so mild that the ordinary client made no duplicate fail the demo, in the table's words."""
    ran = offline("demo", "--writes", "40", "--faults", "none")

    assert ran.code == 1
    assert "FAIL the faults were so mild" in ran.out
    assert "up to 3 attempts on 5xx" in ran.out
    assert "1 s after a 500, 1.5 s after a lost answer" in ran.out


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        ({"duplicates": 1}, "1 duplicates"),
        ({"lost": (LOST,)}, "1 lost writes"),
        ({"wrong": (Wrong(report=LOST, why="x"),)}, "1 wrong verdicts"),
        ({"unasked": 2}, "2 effects without a write"),
        (
            {"verdicts": {Verdict.APPLIED: 989, Verdict.UNKNOWN: 11}},
            "11 of 1000 writes unknown",
        ),
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

    show(columns(judged), ["invsvc_async has 1 wrong verdicts"], kept=0)
    shown = capsys.readouterr().out

    assert re.search(r"wrong verdicts +\| +0\| +1\|", shown.replace(" | ", "| "))
    assert "called applied\nit was never sent\n" in shown
    assert "FAIL invsvc_async has 1 wrong verdicts" in shown
    assert "PASS" not in shown


def test_numbers_of_the_table_add_up(capsys, monkeypatch):
    """Effects are writes that took effect and duplicates; verdicts, wrong verdicts and webhooks add up."""
    denied = attrs.evolve(LOST, key="b", verdict=Verdict.REFUSED)
    wrong = [
        (LOST, "no effect"),
        (denied, "its effect"),
        (attrs.evolve(denied, key="c"), "its effect came after that of a newer write"),
    ]
    theirs = attrs.evolve(
        CLEAN, effects=1100, duplicates=110, unasked=3, lost=(LOST,), inverted=1, already=5,
        verdicts={Verdict.APPLIED: 980, Verdict.REFUSED: 12, Verdict.UNKNOWN: 8},
        unknown_reasons={"timed out": 8},
        wrong=tuple(Wrong(report=report, why=why) for report, why in wrong),
    )  # fmt: skip

    show(columns(CLEAN, theirs), [], kept=-4)
    cells = [
        line.split("|")
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("|")
    ]
    rows = {
        name.rstrip(): int(number.replace(",", ""))
        for _, name, number, *_ in cells[1:-1]
    }

    def total(*names):
        return sum(rows[name] for name in names)

    assert rows["writes requested"] == total("  had no effect", "  took effect") == 1000
    assert (
        rows["effects in the service"]
        == 1100
        == total(
            "  took effect",
            "duplicates (took effect again)",
            "effects that belong to no write",
        )
    )
    assert total(*(name for name in rows if name.startswith("reported"))) == 1000
    assert (
        rows["wrong verdicts"]
        == 3
        == total(
            "  lost (applied, but no effect)",
            "  denied, but took effect",
            "  in the wrong order",
        )
    )
    assert rows["  in the wrong order"] == rows["  denied, but took effect"] == 1
    assert rows["webhooks left in the service"] == 0
    assert rows["  difference"] == 4
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[1;31m3\x1b[0m" in screened(show, columns(CLEAN, theirs), [], kept=-4)


def test_reason_that_is_wrapped(monkeypatch):
    """Each of its lines is indented below its verdict."""
    reason = (
        "the list of webhooks is full, so that another one may have been made meanwhile"
    )
    unknown = {"verdicts": {Verdict.UNKNOWN: 1000}, "unknown_reasons": {reason: 1000}}
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    shown_text = screened(
        show, columns(CLEAN, attrs.evolve(CLEAN, **unknown)), [], kept=0
    )
    lines = re.sub(r"\x1b\[[\d;]*m", "", shown_text).splitlines()
    [at] = [n for n, line in enumerate(lines) if "the list of webhooks" in line]

    assert all(line.startswith("   ") for line in lines[at : at + 2]), lines[
        at : at + 2
    ]
    assert "wrong verdicts" not in lines[at + 1]


@pytest.mark.slow
def test_demo_of_sequences(offline):
    """Under faults without an effect, sequences and equal creates are judged, and each is applied once."""
    ran = offline("demo", "--writes", "100", "--seed", "2", "--json", "--faults",
                  "rate=0.4,reads=0.1,kinds=503+reset,phases=before")  # fmt: skip
    ours = json.loads(ran.out)["sdk"]

    assert (
        ours["wrong"],
        ours["duplicates"],
        ours["out_of_order"],
        ours["unasked"],
    ) == ([], 0, 0, 0)
    assert ours["verdicts"]["superseded"] == 0
    assert ours["sends"] > ours["effects"] > 75


def rename(key, name):
    return WorkloadStep(
        key=key,
        operation="journeys.update",
        arguments={"journey": "jrn_1", "name": name},
    )


async def run(name, unit, faults):
    """Run one sequence through one client; return its judgement and the ledger."""
    async with embedded(plan_for([unit], seed=1, faults=faults)) as service:
        column = await run_client(
            name, [unit], service, concurrency=1, seed=1, on_done=lambda: None
        )
        return column.judgement, (await service.tell()).ledger


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sdk", "ordinary"])
async def test_effects_by_write(name):
    """Each request of either client names its write, so that equal ones are told apart."""
    judged, ledger = await run(
        name, (rename("a", "May"), rename("b", "May"), rename("c/1", "May")), "none"
    )

    assert [each.sender for each in ledger] == ["a", "b", "c%2F1"]
    assert (judged.wrong, judged.unasked) == ((), 0)


async def test_write_of_what_stood_there():
    """A change that never arrives, to what stood there from the start, may be called applied."""
    judged, ledger = await run(
        "sdk", (rename("a", "Dunning"),), "rate=1,reads=0,kinds=reset,phases=before"
    )

    assert not any(each.applied for each in ledger)
    assert (judged.verdicts, judged.wrong) == ({Verdict.APPLIED: 1}, ())


@pytest.mark.parametrize("writes", [1, 3, 7, 16, 100, 2001])
def test_writes_made_up(writes):
    """There are as many as asked for, each with a key of its own, and no team's list fills."""
    units = made_up(writes, seed=1)
    steps = [step for unit in units for step in unit]
    plan = plan_for(units, seed=1, faults="none")
    per_team = [
        sum(team == each for _, each in plan.webhooks)
        + sum(
            step.operation == "webhooks.create" and step.arguments["team"] == team
            for step in steps
        )
        for team in plan.teams
    ]

    assert len(steps) == len({step.key for step in steps}) == writes
    assert all(count <= 50 for count in per_team)
    assert [team for _, team in plan.webhooks if team not in plan.teams] == []


def changes_of(units, operation):
    """List what the changes of each unit set, for units with more than one."""
    names = ("name", "description", "status")
    found = [
        tuple(
            step.arguments[name]
            for step in unit
            if step.operation == operation
            for name in names
            if name in step.arguments
        )
        for unit in units
    ]
    return [each for each in found if len(each) > 1]


@pytest.mark.parametrize("operation", ["journeys.update", "webhooks.update"])
def test_sequences_made_up(operation):
    """Changes of one thing, two or three in a row, set different values, undo each other, and set equal ones."""
    found = changes_of(made_up(2000, seed=1), operation)
    undone = [
        each
        for each in found
        if each[-1] in (each[0], "Dunning", "") and len(set(each)) == 2
    ]
    equal = [each for each in found if len(set(each)) == 1]
    different = [
        each for each in found if len(set(each)) == len(each) and each not in undone
    ]

    assert {len(each) for each in found} == {2, 3}
    assert sum(map(len, found)) > 250
    for kind in (undone, equal, different):
        assert {len(each) for each in kind} == {2, 3}
        assert len(kind) > len(found) / 5


def test_equal_creates_made_up():
    """Pairs of equal creates, one after the other, are tagged or not, and spelt alike or not."""
    pairs = [unit for unit in made_up(2000, seed=1) if unit[0].key.startswith("equal-")]
    kinds = {
        (both.tagged, both.arguments["url"] == other.arguments["url"])
        for both, other in pairs
    }

    assert len(pairs) > 100
    assert kinds == {(False, True), (False, False), (True, True)}


def test_other_spelling():
    """The other spelling is another text of the same address."""
    from invsvc_async.reconcile.compare import url_key

    url = "https://equal.example/1/2"

    assert respelt(url) != url
    assert url_key(respelt(url)) == url_key(url)


def test_values_of_an_undo():
    """Two changes that undo each other end at what stood there before, and three at the first of them."""
    assert values(1, 2, "new", "old") == ("new", "old")
    assert values(1, 3, "new", "old") == ("new", "new/between", "new")


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
    assert ran.err.count("has the same key as line 1") == 2


@pytest.mark.slow
def test_input_with_equal_writes(offline, here):
    """Equal writes are writes of their own, in order, whether or not they name the credential's own team."""
    twins = [{"webhook": "wh_1"}, {"webhook": "wh_1", "team": "team_1"}]
    deletes = [line("webhooks.delete", **each) for each in twins]
    updates = [line("journeys.update", journey="jrn_1", name="May")] * 2
    (here / "twins.jsonl").write_text("\n".join([*deletes, *updates]))

    told = json.loads(
        offline("demo", "--input", "twins.jsonl", "--faults", "none", "--json").out
    )

    for column in (told["sdk"], told["ordinary"]):
        assert (
            column["effects"],
            column["wrong"],
            column["duplicates"],
            column["unasked"],
        ) == (3, [], 0, 0)
        assert (column["verdicts"]["applied"], column["verdicts"]["refused"]) == (3, 1)


def test_input_without_a_write(offline, here):
    """An empty file is said to be one."""
    (here / "none.jsonl").write_text("\n\n")

    assert (
        offline("demo", "--input", "none.jsonl").err
        == "invsvc: none.jsonl: has no writes. Add at least one\n"
    )


@pytest.mark.slow
def test_input_that_is_run(offline, here):
    """A file's writes run in its order where they touch the same thing, which is there from the start."""
    file = here / "writes.jsonl"
    file.write_text("\n".join([
        line("webhooks.update", webhook="wh_mine", description="one", team="team_x"),
        line("webhooks.delete", webhook="wh_mine", team="team_x"),
        line("journeys.update", journey="jrn_mine", name="May"),
        line("webhooks.create", url="https://a.example", events=["invoice.created"], team="team_x"),
    ]))  # fmt: skip

    told = json.loads(
        offline("demo", "--input", str(file), "--faults", "none", "--json").out
    )

    assert (
        told["sdk"]["verdicts"]["applied"]
        == told["ordinary"]["verdicts"]["applied"]
        == 4
    )
    assert told["sdk"]["effects"] == told["ordinary"]["effects"] == 4
    assert told["sdk"]["wrong"] == []


def test_faults_that_are_not_understood(offline):
    """A fault plan that cannot be read is a matter of usage."""
    ran = offline("demo", "--faults", "rate=9")

    assert ran.code == 2
    assert "probability" in ran.err
