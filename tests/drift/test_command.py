"""``invsvc reconcile``: what it prints, its exit codes, its report, and how it is interrupted."""

from __future__ import annotations

import io
import json
import signal
import stat
from pathlib import Path

import pytest

from tests.cli.conftest import (  # the last four are fixtures
    ENVIRONMENT,
    child,
    hang_up_is_not_inherited,  # noqa: F401
    here,  # noqa: F401
    invsvc,  # noqa: F401
    served,  # noqa: F401
)


@pytest.fixture
def mine(invsvc, here):  # noqa: F811 - fixtures
    """Return a file that agrees with the service but in one total, and lacks one invoice."""
    listed = json.loads(invsvc("list", "invoices.egress", "--all", "--json").out)
    rows = [
        {"folio": each["uuid"], "amount": str(each["total"]), "status": each["status"]}
        for each in listed
    ]
    rows[0]["amount"] = "7.10"
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows[:-1]), ""]
    Path("mine.csv").write_text("\n".join(lines))
    return rows


MAPPED = ("--key", "folio", "--map", "total=amount")


def test_table(invsvc, mine):  # noqa: F811
    """Each difference is a line; counts and what was compared are told on stderr."""
    code, out, err = invsvc("reconcile", "invoices", "mine.csv", *MAPPED)

    assert code == 1
    assert [line.split("\t")[:5] for line in out.splitlines()] == [
        ["difference", "key", "line", "field", "yours"],
        ["not in rows", mine[-1]["folio"], "", "", ""],
        ["different", mine[0]["folio"], "2", "total", "7.10"],
    ]
    assert (
        err
        == "rows: 11, items: 12, not in rows: 1, different: 1. Compared: status, total, uuid\n"
    )


def test_json(invsvc, mine):  # noqa: F811
    """Each difference is a line of JSON, with exact numbers, and the counts are the last one."""
    code, out, _ = invsvc("reconcile", "invoices", "mine.csv", *MAPPED, "--json")
    missing, different, counts = map(json.loads, out.splitlines())

    assert code == 1
    assert missing == {"difference": "not in rows", "key": mine[-1]["folio"]}
    assert (different["line"], different["fields"][0]["field"]) == (2, "total")
    assert '"yours":7.10,' in out
    assert counts == {
        "complete": True,
        "rows": 11,
        "items": 12,
        "not_in_rows": 1,
        "different": 1,
    }


def test_no_difference(invsvc, here):  # noqa: F811
    """The exit code is 0, and stdout is empty."""
    assert invsvc("export", "invoices", "-o", "mine.jsonl").code == 0

    code, out, err = invsvc("reconcile", "invoices", "mine.jsonl")

    assert (code, out) == (0, "")
    assert err.startswith("rows: 12, items: 12. No difference. Compared: created_at, ")
    assert "Not compared: client, payments" in err


def test_rows_outside_the_window(invsvc, here):  # noqa: F811
    """They are counted, and not compared."""
    assert invsvc("export", "invoices", "-o", "mine.jsonl").code == 0

    code, out, err = invsvc("reconcile", "invoices", "mine.jsonl", "--to", "1")

    assert (code, out) == (0, "")
    assert err.startswith("rows: 12, rows outside: 12, items: 0. No difference.")


def test_webhooks_by_their_key(invsvc, here):  # noqa: F811
    """The column of the keys is that of the ids."""
    Path("mine.csv").write_text("hook\nwh_none\n")

    _, out, _ = invsvc("reconcile", "webhooks", "mine.csv", "--key", "hook")

    assert "not in service\twh_none\t2" in out


def test_report(invsvc, here):  # noqa: F811
    """It is a page of its owner's only, in which texts of rows are text."""
    Path("mine.csv").write_text("uuid\n<script>alert(1)</script>\n")

    code, _, err = invsvc("reconcile", "invoices", "mine.csv", "--report", "out.html")
    page = Path("out.html").read_text()

    assert code == 1
    assert "<h1>invoices.egress and mine.csv</h1>" in page
    assert "<td>&lt;script&gt;alert(1)&lt;/script&gt;</td>" in page
    assert page.count("<tr>") == 1 + 12 + 1
    assert stat.S_IMODE(Path("out.html").stat().st_mode) == 0o600
    assert err.splitlines()[0] in page


def test_more_than_is_shown(invsvc, here):  # noqa: F811
    """The first 500 are in the table and the report; --json prints all."""
    Path("mine.csv").write_text("uuid\n" + "".join(f"{n}\n" for n in range(600)))

    _, out, err = invsvc("reconcile", "invoices", "mine.csv", "--report", "out.html")

    assert len(out.splitlines()) == 501
    assert "112 more are not shown: --json prints them all" in err
    assert "112 more are not shown" in Path("out.html").read_text()
    _, out, err = invsvc("reconcile", "invoices", "mine.csv", "--json")
    assert len(out.splitlines()) == 613
    assert "not shown" not in err


def test_key_with_white_space(invsvc, here):  # noqa: F811
    """It is shown, on the page too, where a browser would drop it; as JSON the key is as it was."""
    Path("mine.csv").write_text("uuid\n A-1\u00a0\n")

    _, out, _ = invsvc("reconcile", "invoices", "mine.csv", "--report", "out.html")

    assert "not in service\t␣A-1␣\t2\t\tits key has white space" in out
    assert "<td>␣A-1␣</td>" in Path("out.html").read_text()
    out = invsvc("reconcile", "invoices", "mine.csv", "--json").out
    assert json.loads(out.splitlines()[-2])["key"] == " A-1\u00a0"


def test_standard_input(invsvc, here, monkeypatch):  # noqa: F811
    """Rows can be piped, if the form is given."""
    monkeypatch.setattr(
        "sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"uuid": "MINE"}\n'))
    )

    code, out, _ = invsvc(
        "reconcile", "invoices", "-", "--format", "jsonl", "--to", "1"
    )

    assert code == 1
    assert "not in service\tMINE\t1" in out


def test_window_and_zone(invsvc, mine):  # noqa: F811
    """A window of the past has no invoice."""
    window = (
        "--from",
        "2020-05-01",
        "--to",
        "2020-06-01 00:00",
        "--zone",
        "America/Mexico_City",
    )

    code, out, err = invsvc(
        "reconcile",
        "invoices",
        "mine.csv",
        *MAPPED,
        *window,
        "--json",
        "--report",
        "out.html",
    )
    assert (
        "<h1>invoices.egress and mine.csv, from 2020-05-01, to 2020-06-01 00:00</h1>"
        in Path("out.html").read_text()
    )

    assert (
        code,
        json.loads(out.splitlines()[-1])["items"],
        err.count("not in service: 11"),
    ) == (1, 0, 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("invoices", "none.csv"), "does not exist"),
        (("users", "mine.csv"), "what: 'users' is unknown"),
        (
            ("invoices", "mine.csv"),
            "uuid: no row has this column. There are folio, amount, status",
        ),
        (("invoices", "mine.csv", "--map", "total"), "'total': write FIELD=COLUMN"),
        (
            ("invoices", "mine.csv", *MAPPED, "--map", "total=status"),
            "a field is given twice",
        ),
        (
            ("invoices", "mine.csv", *MAPPED, "--map", "uuid=status"),
            "a field is given twice",
        ),
        (
            ("invoices", "mine.csv", "--zone", "Mexico City"),
            "Mexico City: is no known time zone",
        ),
        (("invoices", "mine.csv", "--zone", "../etc"), "../etc: is no known time zone"),
        (("invoices", "mine.csv", "--report", "mine.csv"), "mine.csv is the rows"),
        (("invoices", "mine.csv", "--delimiter", ";;"), "delimiter"),
        (
            ("invoices", "mine.csv", "--format", "xlsx"),
            "'xlsx' is unknown. Use one of jsonl, csv, parquet",
        ),
    ],
)
def test_usage_errors(invsvc, mine, arguments, words):  # noqa: F811
    """They are told in words, with exit code 2."""
    before = Path("mine.csv").read_text()

    code, out, err = invsvc("reconcile", *arguments)

    assert (code, out) == (2, "")
    assert words in " ".join(err.replace("│", " ").split())
    assert Path("mine.csv").read_text() == before


def test_full_list_of_webhooks(invsvc, served, here):  # noqa: F811
    """If others may exist that were not listed, the exit code is 3."""
    hook = '{{"operation": "webhooks.create", "arguments": {{"url": "https://me.example/{}", "events": ["invoice.created"]}}}}\n'
    Path("writes.jsonl").write_text("".join(hook.format(n) for n in range(100)))
    assert (
        invsvc("batch", "writes.jsonl", "--journal", "run.db", "--no-secrets").code == 0
    )
    listed = json.loads(invsvc("list", "webhooks", "limit=100", "--json").out)
    Path("mine.jsonl").write_text(
        "".join(json.dumps({"id": each["id"]}) + "\n" for each in listed)
    )

    code, out, err = invsvc("reconcile", "webhooks", "mine.jsonl")

    assert (code, out) == (3, "")
    assert "There may be others" in err


def test_refused_credential(invsvc, mine, monkeypatch):  # noqa: F811
    """Errors of the service end it as they end other commands."""
    monkeypatch.setenv("INVSVC_API_KEY", "eyJ.a.b")

    code, out, err = invsvc("reconcile", "invoices", "mine.csv", *MAPPED)

    assert (code, out) == (1, "")
    assert "HTTP 401" in err or "Unauthorized" in err


def test_ctrl_c(invsvc, served, mine, here):  # noqa: F811
    """It ends at once with 130, without a traceback, a report or another file."""
    served.script("invoices.egress", "hang 60")
    before = served.ask("/_simulator/arrivals")["arrivals"]
    settings = {"INVSVC_BASE_URL": served.base_url, "INVSVC_API_KEY": served.api_key}
    running = child(
        "reconcile",
        "invoices",
        "mine.csv",
        *MAPPED,
        "--report",
        "out.html",
        env=ENVIRONMENT | settings,
    )
    while (
        running.poll() is None
        and served.ask("/_simulator/arrivals")["arrivals"] == before
    ):
        pass

    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=300)

    assert (running.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert [path.name for path in here.iterdir()] == ["mine.csv"]
