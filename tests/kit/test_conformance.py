"""The conformance kit: clients as commands, judged by the ledger."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from invsvc_async.cli.app import run
from invsvc_async.conformance.run import read_reports
from invsvc_async.conformance.work import made_up, tasks
from invsvc_async.reconcile.evidence import Verdict

CLIENTS = Path(__file__).parents[2] / "examples" / "conformance"
ALWAYS_AFTER = "rate=0.5,kinds=500,phases=after"  # the effect, and then a 500


@pytest.fixture
def judged(capsys, monkeypatch):
    """Run `invsvc conformance` on a Python program, and give its exit code and JSON."""
    monkeypatch.setenv("PYTHONPATH", str(CLIENTS.parents[1]))

    def judge(*program, writes=24, faults=ALWAYS_AFTER, options=()):
        asked = ["conformance", "--json", "--writes", str(writes), "--faults", faults, *options]
        code = run([*asked, "--", sys.executable, *map(str, program)])
        return code, json.loads(capsys.readouterr().out)

    return judge


def test_this_package(judged):
    """Our own reports are true and no write has two effects, though half of the answers are lies."""
    code, told = judged(CLIENTS / "sdk.py")

    assert (code, told["holds"]) == (0, True)
    assert (told["duplicates"], told["wrong"], told["unknown"], told["effects"]) == (0, 0, 0, 24)


@pytest.mark.parametrize("client", ["plain_aiohttp", "tenacity_aiohttp", "httpx_retries"])
def test_clients_that_send_again(judged, client):
    """A client that sends again after a 500 has second effects, and is told so."""
    code, told = judged(CLIENTS / f"{client}.py")

    assert (code, told["holds"]) == (1, False)
    assert told["duplicates"] > 0
    assert told["unreported"] == 0


def test_client_that_lies(judged, tmp_path):
    """A client that calls everything applied and sends nothing has lost each write."""
    liar = tmp_path / "liar.py"
    liar.write_text(
        "import json, os\n"
        "for line in open(os.environ['INVSVC_WRITES']):\n"
        "    print(json.dumps({'key': json.loads(line)['key'], 'verdict': 'applied'}))\n"
    )
    code, told = judged(liar, writes=8)

    assert (code, told["lost"], len(told["contradicted"])) == (1, 8, 8)


def test_client_that_says_nothing(judged):
    """Writes that are not reported count, and the command's own exit code too."""
    code, told = judged("-c", "raise SystemExit(7)", writes=4)

    assert (code, told["unreported"], told["exit_code"]) == (1, 4, 7)


def test_client_that_never_ends(judged):
    """A command is ended when its time is over."""
    code, told = judged("-c", "import time; time.sleep(60)", writes=4, options=("--timeout", "1"))

    assert (code, told["exit_code"]) == (1, None)


def test_client_that_reports_and_never_ends(judged, tmp_path):
    """A client whose reports are all there, and true, is still at fault for not ending."""
    honest = tmp_path / "honest.py"
    honest.write_text(
        "import json, os, time\n"
        "for line in open(os.environ['INVSVC_WRITES']):\n"
        "    print(json.dumps({'key': json.loads(line)['key'], 'verdict': 'not_applied'}), flush=True)\n"
        "time.sleep(60)\n"
    )
    code, told = judged(honest, writes=4, options=("--timeout", "2"))

    assert (code, told["wrong"], told["unreported"], told["holds"]) == (1, 0, 0, False)


def test_command_that_is_not_there(capsys):
    """A command that cannot be started is a matter of usage."""
    assert run(["conformance", "--writes", "4", "no-such-command-anywhere"]) == 2


def test_reports_that_are_read():
    """The last line of a key counts, either spelling of a verdict will do, and noise is passed over."""
    work = tasks(made_up(4, 1), home="team_1")
    keys = [task.key for task in work]
    out = [
        b"Starting\n",
        json.dumps({"key": keys[0], "verdict": "unknown"}).encode(),
        json.dumps({"key": keys[0], "verdict": "not_applied", "reason": "x"}).encode(),
        json.dumps({"key": keys[1], "verdict": "not applied"}).encode(),
        json.dumps({"key": keys[2], "verdict": "perhaps"}).encode(),
        b"[1]\n",
    ]

    reports, unreported = read_reports(out, work)

    assert [report.verdict for report in reports] == [
        Verdict.NOT_APPLIED, Verdict.NOT_APPLIED, Verdict.UNKNOWN, Verdict.UNKNOWN,
    ]  # fmt: skip
    assert unreported == 2


def test_writes_that_are_handed_out():
    """No two lines touch the same thing, and each is whole without any knowledge of the operations."""
    lines = [task.line for task in tasks(made_up(100, 1), home="team_1")]
    things = [line["path"] for line in lines if line["method"] != "POST"]

    assert len(set(things)) == len(things) == 75
    assert not any("{" in line["path"] for line in lines)
    assert {line["operation"] for line in lines} == {
        "webhooks.create", "webhooks.update", "webhooks.delete", "journeys.update",
    }  # fmt: skip
