"""
The example of a warehouse: killed while it reads and while it loads, and compared with the service.

``nox -s warehouse`` has dlt and DuckDB; elsewhere these tests are skipped.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest

from invsvc_async.simulator.json_records import json_text
from tests.support.waiting import block_until

duckdb = pytest.importorskip("duckdb", reason="nox -s warehouse has it")
pytest.importorskip("dlt", reason="nox -s warehouse has it")

pytestmark = pytest.mark.one_python

ROOT = Path(__file__).parents[2]
SMALL = """
import logging, sys
from datetime import timedelta
from examples import warehouse
warehouse.PAGES, warehouse.LOOKBACK = int(sys.argv[1]), timedelta(days=float(sys.argv[2]))
warehouse.main("invoices.duckdb")
"""
AMOUNTS = (
    "exchange_rate",
    "total",
    "subtotal",
    "discount",
    "taxes",
    "withholding_taxes",
)
TEXTS = ("uuid", "status", "series", "currency", "invoice_type", "owner")


@pytest.fixture
def here(service, tmp_path, monkeypatch):
    """Keep dlt's own files in the empty directory, and dlt from reporting its use."""
    monkeypatch.setenv("DLT_DATA_DIR", str(tmp_path / "dlt"))
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


@contextmanager
def started(pages=1, lookback=30.0):
    """Run the program, with *pages* in one load; whatever becomes of it, it has ended afterwards."""
    command = [sys.executable, "-c", SMALL, str(pages), str(lookback)]
    with Path("out.txt").open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ)  # noqa: S603
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def loaded(**settings):
    with started(**settings) as process:
        assert process.wait(600) == 0, Path("out.txt").read_text()


def killed_when(happens):
    """Run the program, and kill it as soon as *happens* is true of it."""
    with started() as process:
        block_until(lambda: happens() or process.poll() is not None, every=0.001)
        assert process.poll() is None, Path("out.txt").read_text()
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


def rows(table):
    with duckdb.connect("invoices.duckdb", read_only=True) as db:
        found = db.execute(f"select * from invsvc.{table}")
        names = [each[0] for each in found.description]
        return [dict(zip(names, each, strict=True)) for each in found.fetchall()]


def digits(text):
    """Parse JSON, and keep numbers as they are written."""
    return json.loads(text, parse_float=str, parse_int=str)


def same_as(service):
    """Compare each table with the service: every invoice once, in its latest state, with all digits."""
    kept = service.book().invoices.items.values()
    for table, kind in (("invoices", "E"), ("payment_complements", "P")):
        wanted = {each["uuid"]: each for each in kept if each["invoice_type"] == kind}
        found = rows(table)
        assert sorted(each["uuid"] for each in found) == sorted(wanted)
        for each in found:
            record = wanted[each["uuid"]]
            assert {name: each[name] for name in TEXTS} == {
                name: record[name] for name in TEXTS
            }
            assert {name: each[name] for name in AMOUNTS} == {
                name: Decimal(str(record[name])) for name in AMOUNTS
            }
            assert round(each["created_at"].timestamp() * 1000) == record["created_at"]
            assert digits(each["raw"]) == digits(json_text(record))
    assert {each["id"] for each in rows("users")} == {each["owner"] for each in kept}


def change(service, record, **fields):
    service.book().invoices.put(record["uuid"], record.with_changes(fields))


def test_warehouse_that_is_killed(service, here):
    """Killed while it reads and while it loads, and run again, it has each invoice once, as it is now."""
    invoices = service.seed_invoices(480)
    service.seed_invoices(30, invoice_type="P")
    service.seed_user(id="usr_2")
    # in the second load, or the third
    killed_when(lambda: service.arrivals("invoices.egress") >= 3)
    assert rows("invoices")  # the first load has been committed
    assert len(rows("invoices")) < 480

    for record in invoices[::50]:
        change(
            service,
            record,
            status="canceled",
            total=Decimal("0.000000000001"),
            owner="usr_2",
        )
    killed_when(lambda: [*here.glob("*.dlt/*/load/normalized/*/started_jobs/*.*")])

    service.seed_invoices(5, idempotency_key=None)
    change(
        service, invoices[7], total=Decimal("98765432109876543210987654.000000000001")
    )
    loaded()
    same_as(service)
    before = service.arrivals("invoices.egress")
    loaded(pages=50)

    same_as(service)
    # 497 invoices of the last 30 days, read once
    assert service.arrivals("invoices.egress") - before == 5


def changed_rows():
    return {each["uuid"] for each in rows("invoices") if each["status"] == "changed"}


def test_change_within_the_lookback(service, here):
    """A run sees what has changed within its own LOOKBACK, whatever that of the run before was."""
    service.seed_invoices(200)
    by_age = sorted(
        service.book().invoices.items.values(), key=lambda each: each["created_at"]
    )
    egress = [each for each in by_age if each["invoice_type"] == "E"]
    loaded()
    for record in (egress[0], egress[-2]):
        change(service, record, status="changed")
    loaded(lookback=0.0)
    assert changed_rows() == set()
    loaded()
    change(service, egress[1], status="changed")
    loaded(lookback=0.0)

    assert changed_rows() == {egress[0]["uuid"], egress[-2]["uuid"]}


def test_program_without_a_file(here):
    """It says what it needs."""
    program = ROOT / "examples/warehouse.py"
    ran = subprocess.run(  # noqa: S603 - the example
        [sys.executable, str(program)], capture_output=True, text=True, check=False
    )

    assert ran.returncode == 1
    assert ran.stderr.startswith("file: is missing. ")


def test_two_files(service, here, monkeypatch):
    """Each is where its loads were run, and has all invoices, although the loads take turns."""
    (here / "other").mkdir()
    for folder in (here, here / "other", here, here / "other"):
        monkeypatch.chdir(folder)
        service.seed_invoices(5, created_at=service.clock.now_ms())
        loaded(lookback=0.0)

        same_as(service)


def test_more_invoices_of_one_moment_than_a_load_has(service, here):
    """A load ends only where created_at changes, so that the next one does not begin at the same place."""
    moment = service.clock.now_ms() - 3_600_000
    service.seed_invoices(350, created_at=moment)
    service.seed_invoices(20, created_at=moment + 1)
    loaded()

    same_as(service)


def test_number_that_does_not_fit(service, here):
    """A number that the warehouse would round ends the load, and is named."""
    service.seed_invoice(total=Decimal("0.1234567890123"))
    with started() as process:
        assert process.wait(600) != 0

    assert "0.1234567890123 does not fit decimal(38, 12)" in Path("out.txt").read_text()


def test_webhooks_and_what_is_malformed(service, here):
    """Webhooks are those that there are now; a malformed field is null, and its row is not lost."""
    kept, gone = service.seed_webhook(), service.seed_webhook(owner="usr_gone")
    invoice = service.seed_invoice(total="a lot")
    loaded()
    assert {each["id"] for each in rows("webhooks")} == {kept["id"], gone["id"]}
    service.remove_webhook(gone["id"])
    loaded()

    (hook,) = rows("webhooks")
    assert (hook["id"], hook["events"], "secret" in hook) == (
        kept["id"],
        '["invoice.created"]',
        False,
    )
    (row,) = [each for each in rows("invoices") if each["uuid"] == invoice["uuid"]]
    assert row["total"] is None
    assert digits(row["raw"]) == digits(json_text(invoice))
    assert "user usr_gone: does not exist any more" in Path("out.txt").read_text()
