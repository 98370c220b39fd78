"""The conformance kit: clients as commands, judged by the ledger."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from invsvc_async.cli.app import run
from invsvc_async.conformance.run import read_reports, tasks
from invsvc_async.conformance.workload import made_up
from invsvc_async.reconcile.history import Verdict

pytestmark = pytest.mark.one_python

CLIENTS = Path(__file__).parents[2] / "examples" / "conformance"
ALWAYS_AFTER = "rate=0.5,kinds=500,phases=after"  # the effect, and then a 500


@pytest.fixture
def judged(capsys, monkeypatch):
    """Run `invsvc conformance` on a Python program, and give its exit code and JSON."""
    monkeypatch.setenv("PYTHONPATH", str(CLIENTS.parents[1]))

    def judge(*program, writes=24, faults=ALWAYS_AFTER, options=()):
        asked = [
            "conformance",
            "--json",
            "--writes",
            str(writes),
            "--faults",
            faults,
            *options,
        ]
        code = run([*asked, "--", sys.executable, *map(str, program)])
        return code, json.loads(capsys.readouterr().out)

    return judge


def test_this_package(judged):
    """Our own reports are true and no write has two effects, though half of the answers are lies."""
    code, told = judged(CLIENTS / "sdk.py")

    assert (code, told["holds"]) == (0, True)
    assert (told["duplicates"], told["wrong"], told["effects"]) == (0, 0, 24)
    # None on an idle machine; on a busy one, slow answers show the service's clock less exactly.
    assert told["unknown"] <= 6, told["unknown_reasons"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "client", ["plain_aiohttp", "tenacity_aiohttp", "httpx_retries"]
)
def test_clients_that_send_again(judged, client):
    """A client that sends again after a 500 has second effects, and is told so."""
    code, told = judged(CLIENTS / f"{client}.py")

    assert (code, told["holds"]) == (1, False)
    assert told["duplicates"] > 0
    assert told["unreported"] == 0


LIAR = (
    "import json, os\n"
    "for line in open(os.environ['INVSVC_WRITES']):\n"
    "    print(json.dumps({'key': json.loads(line)['key'], 'verdict': 'applied'}), flush=True)\n"
)


def test_client_that_lies(judged):
    """A client that calls everything applied and sends nothing has lost each write."""
    code, told = judged("-c", LIAR, writes=8)

    assert (code, told["lost"], len(told["contradicted"])) == (1, 8, 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("", ""),
        ("raise SystemExit(3)", "exited with 3"),
        ("import time; time.sleep(60)", "was killed"),
    ],
)
def test_words_about_a_client(capsys, end, said):
    """Counts are a table; how the command ended, where not well, and what the ledger contradicts are notes."""
    code = run(
        [
            "conformance",
            "--writes",
            "2",
            "--timeout",
            "5",
            "--",
            sys.executable,
            "-c",
            LIAR + end,
        ]
    )
    told = capsys.readouterr()

    assert code == 1
    assert "reports that contradict the ledger\t2" in told.out
    assert said in told.err
    assert ("the command" in told.err) == bool(said)
    assert "create-0: reported applied, but the ledger has no effect of it" in told.err


def test_client_that_says_nothing(judged):
    """Writes that are not reported count, and the command's own exit code too."""
    code, told = judged("-c", "raise SystemExit(7)", writes=4)

    assert (code, told["unreported"], told["exit_code"]) == (1, 4, 7)


def test_client_that_never_ends(judged):
    """A command is ended when its time is over."""
    code, told = judged(
        "-c", "import time; time.sleep(60)", writes=4, options=("--timeout", "1")
    )

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
    code, told = judged(honest, writes=4, options=("--timeout", "10"))

    assert (code, told["wrong"], told["unreported"], told["holds"]) == (1, 0, 0, False)


def test_command_that_is_not_there(capsys):
    """A command that cannot be started is a matter of usage."""
    assert run(["conformance", "--writes", "4", "no-such-command-anywhere"]) == 2


def test_reports_that_are_read():
    """The last line of a key counts, either spelling of a verdict will do, and noise is passed over."""
    work = tasks(made_up(4, 1), home="team_1")
    keys = [line["key"] for line, _ in work]
    out = [
        b"Starting\n",
        json.dumps({"key": keys[0], "verdict": "unknown"}).encode(),
        json.dumps({"key": keys[0], "verdict": "not_applied", "reason": "x"}).encode(),
        json.dumps({"key": keys[1], "verdict": "not applied", "reason": None}).encode(),
        json.dumps({"key": keys[2], "verdict": "perhaps"}).encode(),
        b"[1]\n",
    ]

    reports, unreported = read_reports(out, work)

    assert [report.verdict for report in reports] == [
        Verdict.NOT_APPLIED, Verdict.NOT_APPLIED, Verdict.UNKNOWN, Verdict.UNKNOWN,
    ]  # fmt: skip
    assert [report.reason for report in reports[:2]] == ["x", ""]
    assert unreported == 2


def test_report_that_says_not_reported():
    """A report whose reason is the judge's own word for a missing one is a report nevertheless."""
    work = tasks(made_up(2, 1), home="team_1")
    line = {"key": work[0][0]["key"], "verdict": "unknown", "reason": "not reported"}

    reports, unreported = read_reports([json.dumps(line).encode()], work)

    assert [report.reason for report in reports] == ["not reported", "not reported"]
    assert unreported == 1


def test_id_that_is_reported():
    """The id of what a create made is read where the report says applied, and of no other write."""
    work = tasks(made_up(2, 1), home="team_1")
    out = [
        json.dumps({"key": line["key"], "verdict": "applied", "id": "wh_1"}).encode()
        for line, _ in work
    ]

    reports, _ = read_reports(out, work)

    assert [report.made for report in reports] == ["wh_1", None]


def test_writes_that_are_handed_out():
    """Two lines touch the same thing only where one is after the other, and each line is whole by itself."""
    lines = [line for line, _ in tasks(made_up(100, 1), home="team_1")]
    seen, last = {}, {}
    for line in lines:
        thing = (
            line["path"]
            if line["method"] != "POST"
            else line["body"]["url"].lower().replace(":443", "")
        )
        assert line["after"] == last.get(thing)
        last[thing], seen[line["key"]] = line["key"], line

    assert len(lines) == len(seen) == 100
    assert sum(line["after"] is not None for line in lines) == 42
    assert [line["headers"] for line in lines] == [
        {"X-Write-Id": line["key"]} for line in lines
    ]
    assert not any("{" in line["path"] for line in lines)
    assert {line["operation"] for line in lines} == {
        "webhooks.create", "webhooks.update", "webhooks.delete", "journeys.update",
    }  # fmt: skip


def test_client_that_blames_strangers(judged, tmp_path):
    """A client that calls the writes of a sequence superseded by one another is told that nobody else wrote."""
    blaming = tmp_path / "blaming.py"
    blaming.write_text(
        "import json, os, urllib.request\n"
        "for line in open(os.environ['INVSVC_WRITES']):\n"
        "    task = json.loads(line)\n"
        "    url = os.environ['INVSVC_BASE_URL'] + task['path']\n"
        "    if task['query']:\n"
        "        url += '?team=' + task['query']['team']\n"
        "    headers = {'Authorization': 'Bearer ' + os.environ['INVSVC_API_KEY'],\n"
        "               'Content-Type': 'application/json', **task['headers']}\n"
        "    data = json.dumps(task['body']).encode() if task['body'] is not None else None\n"
        "    urllib.request.urlopen(urllib.request.Request(url, data, headers, method=task['method'])).read()\n"
        "    verdict = 'superseded' if task['after'] and 'journeys' in task['path'] else 'applied'\n"
        "    print(json.dumps({'key': task['key'], 'verdict': verdict}))\n"
    )
    code, told = judged(blaming, writes=16, faults="none")

    assert (code, told["exit_code"], told["duplicates"], told["unreported"]) == (
        1,
        0,
        0,
        0,
    )
    assert sorted(told["contradicted"]) == ["pair-0.1", "three-0.1", "three-0.2"]
    assert all("nobody else" in why for why in told["contradicted"].values())


IN_PART = (
    "import json, os\n"
    "for line in open(os.environ['INVSVC_WRITES']):\n"
    "    said = {'key': json.loads(line)['key'], 'verdict': 'unknown', 'basis': 'none', 'cause': 'in part'}\n"
    "    print(json.dumps(said), flush=True)\n"
)


def test_client_that_gives_false_reasons(judged):
    """A client may leave reasons out; those that it gives are judged."""
    code, told = judged("-c", IN_PART, writes=8)

    assert (code, told["wrong"], told["false_reasons"], told["unknown"]) == (1, 8, 8, 8)
    assert set(told["contradicted"].values()) == {
        "told as stored in part, and it never was"
    }


def test_reasons_that_are_read():
    """Basis, cause and duplicates of a line are kept; a line without any has no reason."""
    work = tasks(made_up(3, 1), home="team_1")
    keys = [line["key"] for line, _ in work]
    lines = [
        {
            "key": keys[0],
            "verdict": "applied",
            "id": "wh_1",
            "basis": "match",
            "duplicates": ["wh_2"],
        },
        {"key": keys[1], "verdict": "not_applied", "cause": "overtaken"},
        {"key": keys[2], "verdict": "applied"},
    ]
    reports, _ = read_reports([json.dumps(line).encode() for line in lines], work)

    first, second, third = (report.told for report in reports)
    assert (first.basis, first.made, first.duplicates) == ("match", "wh_1", ("wh_2",))
    assert (second.verdict, second.basis, second.cause) == (
        Verdict.NOT_APPLIED,
        None,
        "overtaken",
    )
    assert third is None


def test_service_that_stores_in_its_own_way(judged, tmp_path):
    """``--stores`` is how the service of the run stores."""
    program = tmp_path / "client.py"
    program.write_text(STORED)
    code, told = judged(
        program, writes=16, faults="none", options=("--stores", "words=folded")
    )
    assert (code, told["unknown_reasons"]) == (1, {"": 15, "dunning": 1})


STORED = """
import json, os, urllib.request
done = False
for line in open(os.environ["INVSVC_WRITES"]):
    write = json.loads(line)
    said = {"key": write["key"], "verdict": "unknown", "reason": ""}
    if write["operation"] == "journeys.update" and not done:
        done = True
        body = json.dumps({"name": "DUNNING"}).encode()
        request = urllib.request.Request(
            os.environ["INVSVC_BASE_URL"] + write["path"], body, method="PUT",
            headers={"Authorization": "Bearer " + os.environ["INVSVC_API_KEY"]},
        )
        with urllib.request.urlopen(request) as answer:
            said["reason"] = json.load(answer)["data"]["name"]
    print(json.dumps(said), flush=True)
"""


def test_plan_that_is_not_one(capsys):
    """A plan that cannot be parsed is a misuse."""
    assert run(["conformance", "--stores", "words=nfd", "--", "true"]) == 2
    assert "nfd is not among" in capsys.readouterr().err
