"""What the pages say of the rules is what the rules do."""

from __future__ import annotations

import re
from math import inf

import attrs
import pytest

from docs.diagram import ASKED, draw, ends, findings
from docs.tables import assumed, operations, parameters, settling
from invsvc_async.api.operations import BY_NAME, TABLE, OperationKind
from invsvc_async.cli.app import COMMANDS
from invsvc_async.reconcile.decide import NOT_SENT_TRIES, PROOF_LASTS, decide
from invsvc_async.reconcile.facts import Known
from invsvc_async.reconcile.history import Attempt, Bounds, Done, End, Read, Verdict
from invsvc_async.reconcile.intent import Intent, Scope
from invsvc_async.settings import ParameterNames, ReadRetries, ReconcilePolicy, Timeouts
from invsvc_async.simulator import Simulator
from tests.docs.pages import ROOT
from tests.exhaustive.walk import Walk, shipped
from tests.exhaustive.world_list import BASES, SMALL

pytestmark = pytest.mark.untraced

PAGES = [
    page
    for page in (ROOT / "docs").rglob("*.md")
    if not {"_build", "_generated"} & set(page.parts)
]
PROMISES = (ROOT / "docs/explanation/promises.md").read_text()
WRITES = [row for row in TABLE if row.kind is OperationKind.WRITE]
VARIABLE = re.compile(r"\bINVSVC_[A-Z_]+\b")
COMMAND = re.compile(r"(?:^|`)invsvc (?:--debug )?([a-z]+)", re.MULTILINE)


@pytest.mark.parametrize("row", WRITES, ids=lambda row: row.name)
def test_read_that_settles(row) -> None:
    """A lost answer is followed by the read that the table names, and is unknown at once where it names none."""
    intent = Intent(
        key="k", operation=row.name, path={"id": "wh_1"}, body={"url": "https://me.example", "events": []},
        scope=Scope(base_url="b"), bounds=Bounds(low=0, high=0), baseline={"id": "wh_1"},
    )  # fmt: skip
    decision = decide(
        Known(row, intent, (Attempt(started=0.0, ended=0.1, end=End.LOST),))
    )

    if row.reader:
        assert decision == Read(reader=row.reader, why=decision.why)
    else:
        assert isinstance(decision, Done)
        assert decision.verdict is Verdict.UNKNOWN


def test_table_of_writes_is_walked() -> None:
    """Every write that has a read is among those whose histories are walked, and one that has none."""
    walked = {base["model"].operation for base in BASES.values()}

    assert {row.name for row in WRITES if row.reader} < walked
    assert {BY_NAME[name].reader for name in walked} >= {None}
    assert len(settling()) - 1 == len(WRITES)


def test_table_of_writes_is_what_the_walker_meets() -> None:
    """In the walked histories each write is settled by the read of its row, and by none where the row has none."""
    met = {row.name: set() for row in WRITES}

    def asked(known):
        decision = decide(known)
        if isinstance(decision, Read):
            met[known.operation.name].add((decision.reader, known.intent.reader))
        return decision

    for setup in SMALL:
        Walk(setup, attrs.evolve(shipped(), decide=asked)).cut(1, until=inf, most=20)

    for row in WRITES:
        # the caller's word for a reader
        given = {own for _, own in met[row.name]} - {None}
        assert {reader for reader, _ in met[row.name]} <= (
            {row.reader} if row.reader else given
        )
        assert met[row.name] or not row.reader
    assert met["teams.create"]


def window_after_a_500(policy):
    """Return how long a 500 to an update is settled, by the rules."""
    intent = Intent(
        key="k", operation="journeys.update", path={"id": "jrn_1"}, body={}, policy=policy,
        scope=Scope(base_url="https://h.example/v2"),
    )  # fmt: skip
    return Known(BY_NAME["journeys.update"], intent, ()).windows.window_of("short")


def test_times_of_the_promises() -> None:
    """The page tells the defaults of the policy."""
    policy = ReconcilePolicy()

    for words in (
        f"| {window_after_a_500(policy):g} s, because reads may lag", f"| {policy.settle_after_loss:g} s | `settle_after_loss` |",
        f"with `reads_lag=0`, {window_after_a_500(attrs.evolve(policy, reads_lag=0.0)):g} s |",
        f"`deadline` ({policy.deadline:g} s)", f"`clock_slack` ({policy.clock_slack:g} s)", f"at most {PROOF_LASTS:g} seconds old",
    ):  # fmt: skip
        assert words in PROMISES
    assert f"{Timeouts().attempt + policy.settle_after_loss:g} s by default" in PROMISES
    assert policy.absence_within == 600.0
    assert "(10 minutes)" in PROMISES


def test_times_of_other_pages() -> None:
    """So do the pages that repeat one."""
    retries = (ROOT / "docs/how-to/retries-timeouts-tokens.md").read_text()
    decision = (ROOT / "docs/explanation/decision.md").read_text()
    later = (ROOT / "docs/how-to/settle-later.md").read_text()

    assert f"at most {ReadRetries().attempts} attempts" in retries
    assert NOT_SENT_TRIES == 3
    assert "up to three times" in decision
    assert f"`max_resends` ({ReconcilePolicy().max_resends})" in decision
    assert (
        f"{Timeouts().attempt + ReconcilePolicy().settle_after_loss:g} seconds" in later
    )


def test_tables_hold_every_row() -> None:
    """Each operation and each parameter has its row, and each assumed name."""
    told = {row[0].strip("`") for row in operations()}
    shown = [row for row in TABLE if row.listed or row.name == "journeys.get"]

    assert {row.name for row in shown} <= told
    assert len(parameters()) - 1 == sum(
        len(row.parameters) + len(row.extra) for row in shown
    )
    assert {row[2].strip("`").partition(".")[2] for row in assumed()[1:]} == set(
        ParameterNames.__annotations__
    )


def test_diagram_is_what_the_rules_say() -> None:
    """Each end and each finding has what follows, and an absence leads to a re-send only after the window."""
    told = {row.seen: row for row in findings()}

    assert [row.first for row in ends()].count("in doubt for 15 s") == 3
    assert told["it is not there"].first == "wait, then read again"
    assert told["it is not there"].later == "send again, on this proof"
    assert told["this read cannot tell"].later == "UNKNOWN"
    assert ASKED.policy == ReconcilePolicy()
    assert draw().startswith("<svg")


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name
)
def test_commands_that_a_page_names(page) -> None:
    """Each is a command of the command line."""
    assert set(COMMAND.findall(page.read_text())) <= set(COMMANDS)


def test_steps_of_the_test_kit() -> None:
    """Each step that the page tells can be scripted."""
    page = (ROOT / "docs/how-to/test-your-code.md").read_text()
    table = page[page.index("| Step |") : page.index("Faults by chance")]
    steps = [
        step
        for line in table.splitlines()
        for step in re.findall(r'`"([^"]+)"`', line.split(" | ")[0])
    ]

    assert len(steps) > 2
    Simulator().script(
        "webhooks.create", *(step for step in steps if not step.startswith("stale"))
    )
    Simulator().script(
        "webhooks.list", *(step for step in steps if step.startswith("stale"))
    )


def test_variables_of_the_environment() -> None:
    """The page tells every one that the package reads, and no other."""
    files = [
        path
        for path in (ROOT / "invsvc_async").rglob("*.py")
        if "conformance" not in str(path)
    ]
    source = "".join(path.read_text() for path in files)
    page = (ROOT / "docs/reference/settings.md").read_text()

    told = (ROOT / "docs/how-to/conformance.md").read_text()
    given = (ROOT / "invsvc_async/conformance/run.py").read_text()

    assert set(VARIABLE.findall(page)) == set(VARIABLE.findall(source))
    assert set(VARIABLE.findall(told)) == set(VARIABLE.findall(given))
