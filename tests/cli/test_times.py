"""``--from`` and ``--to`` of `invsvc audit` and `invsvc reconcile`, and a table that is given without --operation."""

from __future__ import annotations

import json
from zoneinfo import ZoneInfo

import pytest
from typer import BadParameter

from invsvc_async.cli.arguments import moment_of

pytestmark = pytest.mark.one_python

JUNE = 1_780_272_000_000  # 2026-06-01, midnight in UTC
MEXICO = ZoneInfo("America/Mexico_City")
HOUR = 3_600_000  # ms


@pytest.mark.parametrize(
    ("text", "zone", "moment"),
    [
        ("2026-06-01", None, JUNE),
        ("20260601", None, JUNE),
        ("2026-06-01", MEXICO, JUNE + 6 * HOUR),
        ("2026-06-01T01:00:00Z", MEXICO, JUNE + HOUR),
        ("2026-06-01T01:00:00", MEXICO, JUNE + 7 * HOUR),
        (str(JUNE), None, JUNE),
        (None, None, None),
    ],
)
def test_moment(text, zone, moment):
    """A date is its midnight in the zone, or else in UTC."""
    assert moment_of("--from", text, zone) == moment


def test_time_without_an_offset():
    """Nothing says when that was."""
    with pytest.raises(BadParameter, match="no offset"):
        moment_of("--from", "2026-06-01T01:00:00")


async def test_both_commands_have_one_rule(service, invsvc_in_thread, tmp_path):
    """What was created at the time of --from is read, and what was at that of --to is not."""
    for created in (JUNE, JUNE + 24 * HOUR - 1, JUNE + 24 * HOUR):
        service.seed_invoice(created_at=created)
    (tmp_path / "mine.csv").write_text("uuid,total\n")
    window = ("--from", "2026-06-01", "--to", "2026-06-02", "--json")
    _, out, _ = await invsvc_in_thread("audit", "invoices", *window)
    assert json.loads(out.splitlines()[-1])["items"] == 2
    _, out, _ = await invsvc_in_thread("reconcile", "invoices", "mine.csv", *window)
    assert len(out.splitlines()) == 2 + 1  # each is missing in the rows; and the counts


@pytest.mark.parametrize("name", ["orders.csv", "orders"])
async def test_table_without_an_operation(service, invsvc_in_thread, tmp_path, name):
    """The message says what to add, not that the lines are no JSON."""
    (tmp_path / name).write_text("order_id,hook_id,note\n1,wh_1,x\n")
    code, _, err = await invsvc_in_thread(
        "batch", name, "--journal", "run.db", "--no-secrets"
    )
    assert (code, "--operation webhooks.update" in " ".join(err.split())) == (2, True)
    assert "is not JSON" not in err
    assert service.ledger.entries == []


async def test_bad_lines_that_are_no_table(invsvc_in_thread, tmp_path):
    """A line that begins as JSON does is no row, though it has commas."""
    (tmp_path / "writes").write_text(
        '{"operation": "webhooks.delete", "arguments": 1}\n'
    )
    code, _, err = await invsvc_in_thread(
        "batch", "writes", "--journal", "run.db", "--no-secrets"
    )
    assert (code, "is a table, not lines" in " ".join(err.split())) == (2, False)
    assert "nothing was sent" in err
