"""The command line for people: what a terminal shows, what it asks, and how it helps with a wrong word."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import signal
import sys

import pytest

from invsvc_async import Webhook
from invsvc_async.batch.reports.not_applied import Groups
from invsvc_async.batch.result import Result
from invsvc_async.cli.app import COMMANDS, run
from invsvc_async.cli.commands.report import show_groups
from invsvc_async.cli.formatting import Sink
from invsvc_async.cli.output import (
    age,
    console,
    fail,
    note,
    print_facts,
    print_hanging,
    say_wrapped,
    table,
)
from invsvc_async.cli.progress import progress
from invsvc_async.cli.terminal_table import print_fields
from invsvc_async.events import Delivery, SqliteStore
from invsvc_async.reconcile.history import Verdict
from tests.cli.conftest import ENVIRONMENT, Terminal, called, child, printed, screened

pytestmark = [pytest.mark.one_python, pytest.mark.usefixtures("here")]

UUID = r"\b[0-9A-F]{8}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{4}-[0-9A-F]{12}\b"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
HOOK = ("webhooks.create", "events=invoice.created", "url=https://terminal.example/in")


@pytest.fixture
def terminal(monkeypatch):
    """Run one command line on a terminal of so many columns; return what it shows, without colours."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")

    def shown(width, *arguments):
        monkeypatch.setenv("COLUMNS", str(width))
        return printed(run, arguments)

    return shown


async def letters(keys):
    """Store dead letters with *keys*; return how many there are."""
    store = SqliteStore("events.db")
    for key in keys:
        await store.bury(
            Delivery(key=key, type="invoice.created", body=b"{}"), reason="it broke"
        )
    found = len(await store.events(state="dead"))
    await store.close()
    return found


# --- tables


@pytest.mark.parametrize("width", [60, 80, 110, 130, 200])
def test_ids_and_times_stay_whole(invsvc, terminal, width):
    """Whatever the width, each id and each time of a list stands on one line."""
    text = terminal(width, "list", "invoices.egress", "limit=5")

    assert len(re.findall(UUID, text)) == len(re.findall(TIME, text)) == 5
    assert "1234567890.123456789" in text


def test_ids_on_a_narrow_terminal(invsvc, terminal):
    """One that does not fit beside its name is on a line of its own, which the terminal does not break."""
    text = terminal(40, "list", "invoices.egress", "limit=5")

    lines = [line for line in text.splitlines() if re.search(f"{UUID}|{TIME}", line)]
    assert len(lines) == 10
    assert max(map(len, lines)) <= 40


def test_facts_on_a_narrow_terminal(here, terminal):
    """The key of an event is whole, too, and text is wrapped at spaces."""
    key = "4B1F0000-0000-4000-8000-000000000001"
    asyncio.run(letters([key]))

    text = terminal(40, "events", "show", "1", "--store", "events.db")

    assert f"    {key}" in text.splitlines()
    assert "  reason    it broke" in text


@pytest.mark.parametrize(("width", "is_table"), [(80, False), (130, True)])
def test_table_that_does_not_fit(invsvc, terminal, width, is_table):
    """Where even the narrowest columns do not fit, each item is a block with one line for each field."""
    text = terminal(width, "list", "invoices.egress", "limit=5")

    assert ("───" in text) is is_table
    assert len(re.findall(r"^ +uuid +\S+$", text, re.MULTILINE)) == (
        0 if is_table else 5
    )


@pytest.mark.parametrize(
    "cell",
    ['["' + "[" * 100_000, '{"a":' * 100_000, '["a", 1]', '{"a": 1.50, "b": null}'],
)
def test_cell_of_json(terminal, monkeypatch, cell):
    """A deeply nested value is shown as it is, and a flat one in lines."""
    monkeypatch.setenv("COLUMNS", "60")
    shown = printed(lambda: print_fields(console(), [("value", cell)]))

    assert ("a: 1.50" in shown) == (cell == '{"a": 1.50, "b": null}')
    assert cell[:5] in shown or "a: 1.50" in shown


def test_long_line_of_a_field(monkeypatch):
    """All its parts are indented as it is."""
    monkeypatch.setenv("COLUMNS", "60")
    story = "took 0.01 s\n     +0.1 s  sent, and its answer was lost: connection reset"
    lines = printed(lambda: print_fields(console(), [("story", story)])).splitlines()
    assert lines == [
        "  story  took 0.01 s",
        "              +0.1 s  sent, and its answer was lost:",
        "              connection reset",
    ]


def test_long_line_of_a_story(monkeypatch):
    """It is continued below, indented further than its first part, and no word is broken."""
    monkeypatch.setenv("COLUMNS", "40")
    text = "first line\n     +0.1 s  sent, and its answer was lost: connection reset"
    lines = printed(print_hanging, text).splitlines()
    assert lines[:2] == ["first line", "     +0.1 s  sent, and its answer"]
    assert lines[2:] == ["         was lost: connection reset"]


def test_group_of_a_report(monkeypatch):
    """Advice and errors are indented as long as they are; the command is whole, so that it can be copied."""
    monkeypatch.setenv("COLUMNS", "40")
    groups = Groups()
    groups.add(
        Result(
            key="u1",
            operation="webhooks.update",
            verdict=Verdict.REFUSED,
            status=404,
            error="no " * 20,
        )
    )
    lines = printed(
        show_groups, groups.sorted("a/path/to/a/run.db"), "a/path/to/a/run.db"
    ).splitlines()
    assert "  $ invsvc batch report a/path/to/a/run.db --failed out.jsonl" in lines
    assert [each for each in lines[2:] if not each.startswith("  ")] == []


def test_writes_that_failed_alike(monkeypatch):
    """What there is to say of them stands there once, behind their keys."""
    monkeypatch.setenv("COLUMNS", "80")
    groups = Groups()
    for key, error in (("a", "no such webhook"), ("b", "gone"), ("c", "gone")):
        groups.add(
            Result(
                key=key,
                operation="webhooks.delete",
                verdict=Verdict.REFUSED,
                status=404,
                error=error,
            )
        )
    lines = printed(show_groups, groups.sorted("run.db"), "run.db").splitlines()
    assert [each for each in lines if each.startswith("  - ")] == [
        "  - a (webhooks.delete): no such webhook",
        "  - b, c (webhooks.delete): gone",
    ]


def test_colours_of_verdicts(monkeypatch):
    """In tables and fields, words of a verdict or state have its colour, and other words have none."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    rows = [["applied", "applied"], ["unknown", "refused"]]
    shown = screened(table, ("key", "state"), rows)
    assert re.findall(r"\x1b\[(3\dm\w+)", shown) == ["32mapplied", "33mrefused"]
    shown = screened(print_facts, {"key": "unknown", "verdict": "unknown"})
    assert re.findall(r"\x1b\[(31m\w+)", shown) == ["31munknown"]


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (119.4, "119 s"), (119.7, "2 min"), (None, "")]
)
def test_age_in_words(seconds, words):
    """It is rounded before its unit is chosen, so that two neighbours have one."""
    assert age(seconds) == words


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_text_that_looks_like_a_picture(stream):
    """What some programs show as a picture, such as ":id:", is a part of a key or an address."""
    screen = stream()
    with contextlib.redirect_stdout(screen):
        print_facts({"key": "row:id:17"})
        console().print("urn:key:1", markup=False)

    assert "row:id:17" in screen.getvalue()
    assert "urn:key:1" in screen.getvalue()


def test_widest_column_gives_way(terminal, monkeypatch):
    """Of several texts the longest is wrapped, and the id is not."""
    monkeypatch.setenv("COLUMNS", "60")
    row = (
        "wh_2eeb779de8804d58aabc0788",
        "two words",
        "one long text that needs more than a line of this terminal",
    )
    lines = printed(table, ("id", "short", "long"), [row]).splitlines()

    assert all(len(line) <= 60 for line in lines)
    assert any(
        "wh_2eeb779de8804d58aabc0788  two words  one long" in line for line in lines
    )


@pytest.mark.parametrize("show", [note, fail, say_wrapped])
def test_messages_break_between_words(monkeypatch, show):
    """A message is wrapped at spaces; a token longer than the line stays whole, to be copied."""
    monkeypatch.setenv("COLUMNS", "40")
    token = "t" * 70
    text = f"there is more than one line of words here: continue with --resume {token} or without"
    lines = printed(show, text).splitlines()

    assert token in lines
    assert all(len(line) <= 40 for line in lines if line != token)
    assert " ".join(lines).split()[-4:] == ["--resume", token, "or", "without"]


def test_text_in_a_pipe_is_not_wrapped(capsys):
    """A program gets each line as it is."""
    say_wrapped("word " * 40)
    assert capsys.readouterr().out == "word " * 40 + "\n"


def test_notes_of_a_list_come_last(invsvc, terminal):
    """What to do next stands below the items, where it is seen."""
    text = terminal(80, "list", "invoices.egress", "limit=2").strip()

    assert text.index("there are more: use --all") > max(
        found.start() for found in re.finditer(UUID, text)
    )


def test_object_of_an_item(invsvc, terminal):
    """A member of an object stands on a line of its own."""
    lines = [
        line.strip() for line in terminal(60, "get", "users", "usr_1").splitlines()
    ]

    assert "address       street: Avenida de las Acacias" in lines
    assert "city: Querétaro" in lines


def test_wide_rows(invsvc, terminal):
    """With --wide each item is one line, as long as it needs to be."""
    text = terminal(60, "list", "invoices.egress", "limit=5", "--wide")

    assert len(re.findall(rf"^ *{UUID} +{TIME} .*valid", text, re.MULTILINE)) == 5


def test_columns_by_either_name(invsvc):
    """--columns selects the columns, and so does --fields."""
    by_columns = invsvc("list", "invoices.egress", "--columns", "uuid,total").out

    assert by_columns == invsvc("list", "invoices.egress", "--fields", "uuid,total").out
    assert by_columns.startswith("uuid\ttotal\n")


def test_long_value_of_an_item(invsvc, terminal):
    """A value without spaces is printed in one piece, so that it can be copied; texts are wrapped at words."""
    url = f"https://terminal.example/{'x' * 90}"
    words = ("description=" + "word " * 30, "url=" + url, "events=invoice.created")
    text = terminal(60, "write", "webhooks.create", *words)

    assert url in text
    assert re.search(r"description +(word ?)+\n +(word ?)+", text)
    assert all(len(line) <= 60 for line in text.splitlines() if "word" in line)


# --- waiting


def test_spinner_of_a_slow_write(invsvc, terminal, served, monkeypatch):
    """A silent write shows what it waits for and how long at most, and leaves no trace in what follows."""
    monkeypatch.setattr("invsvc_async.cli.progress._SILENCE", 0.0)
    served.script("journeys.update", "slow 2")

    text = terminal(100, "write", "journeys.update", "jrn_1", "name=slow")

    assert re.search(
        r"waiting for the answer to journeys.update \(at most \d+ s\)", text
    )
    assert re.search(r"[\r\n]APPLIED", text)


def test_spinner_of_an_ambiguous_write(invsvc, terminal, served, monkeypatch):
    """While a lost answer is settled, it names the step, and the end of settling."""
    monkeypatch.setattr("invsvc_async.cli.progress._SILENCE", 0.0)
    served.script("journeys.update", "apply, then reset")
    served.script("journeys.get", "slow 2")

    text = terminal(100, "write", "journeys.update", "jrn_1", "name=lost")

    assert re.search(
        r"journeys.update: no clear answer; reading the state \(at most (90|8\d) s\)",
        text,
    )


def test_no_spinner_in_a_pipe(invsvc, monkeypatch, served):
    """Off a terminal nothing is drawn."""
    monkeypatch.setattr("invsvc_async.cli.progress._SILENCE", 0.0)
    served.script("users.get", "slow 0.1")

    assert invsvc("get", "users", "usr_1").err == ""


def test_lines_in_a_pipe(invsvc, monkeypatch, served):
    """Off a terminal a long wait is told in lines, but not as JSON."""
    monkeypatch.setattr("invsvc_async.cli.progress._EVERY", 0.02)
    served.script("users.get", "slow 2", "slow 0.3")

    said = invsvc("get", "users", "usr_1").err.splitlines()
    assert said[0].startswith("waiting for the answer to users.get (at most ")
    assert len(said) > 1
    assert invsvc("get", "users", "usr_1", "--json").err == ""


def test_bar_in_a_pipe(monkeypatch):
    """Off a terminal the steps are told in lines."""
    monkeypatch.setattr("invsvc_async.cli.progress._EVERY", 0.0)
    screen = io.StringIO()
    with contextlib.redirect_stderr(screen), progress("rows", 2) as advance:
        advance()
        advance()
    assert screen.getvalue() == "rows: 1 of 2\nrows: 2 of 2\n"


def test_note_while_a_bar_is_shown(monkeypatch):
    """A note is printed on a line of its own above the bar, such as one about Ctrl-C."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm-256color")
    screen = Terminal()
    with contextlib.redirect_stderr(screen), progress("work", 10) as advance:
        advance()
        assert console(stderr=True) is console(stderr=True)
        note("stopping: writes in flight have 10 s to finish")

    before, _, after = screen.getvalue().partition("stopping: writes")
    # the line of the bar was erased
    assert before.endswith("\r\x1b[2K")
    assert "\n" in after.partition("work")[0]


# --- a question before a delete


@pytest.mark.parametrize(("answer", "arrives"), [("y\n", 1), ("n\n", 0), ("\n", 0)])
def test_question_before_a_delete(
    invsvc, terminal, served, monkeypatch, answer, arrives
):
    """On a terminal a delete is sent after a yes only, and names what it deletes."""
    made = invsvc("write", *HOOK, "--json").json["value"]["id"]
    before = served.ask("/_simulator/arrivals?operation=webhooks.delete")["arrivals"]
    monkeypatch.setattr(sys, "stdin", Terminal(answer))

    text = terminal(100, "write", "webhooks.delete", made)

    assert f"webhooks.delete {made}: delete it?" in text
    assert (
        served.ask("/_simulator/arrivals?operation=webhooks.delete")["arrivals"]
        == before + arrives
    )


def test_ctrl_c_at_the_question(invsvc, terminal, served, monkeypatch):
    """It ends the command at once, and nothing is sent."""
    made = invsvc("write", *HOOK, "--json").json["value"]["id"]
    before = served.ask("/_simulator/arrivals?operation=webhooks.delete")
    typed, handler = [], signal.getsignal(signal.SIGINT)

    class Interrupted(Terminal):
        def readline(self, *_):
            os.kill(os.getpid(), signal.SIGINT)
            typed.append("y")
            return "y\n"

    monkeypatch.setattr(sys, "stdin", Interrupted())

    assert "Aborted" in terminal(100, "write", "webhooks.delete", made)
    assert typed == []
    assert served.ask("/_simulator/arrivals?operation=webhooks.delete") == before
    assert signal.getsignal(signal.SIGINT) is handler


def test_delete_without_a_question(invsvc, terminal, monkeypatch):
    """--yes sends at once, and so does a program, which has no terminal."""
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    made = [invsvc("write", *HOOK, "--json").json["value"]["id"] for _ in range(2)]

    assert "APPLIED" in terminal(100, "write", "webhooks.delete", made[0], "--yes")
    assert invsvc("write", "webhooks.delete", made[1]).code == 0


@pytest.mark.parametrize("answer", ["y\n", "n\n", "--yes"])
def test_question_before_an_event_is_dropped(here, terminal, monkeypatch, answer):
    """The body of a dead letter exists nowhere else, so that it goes after a yes only."""
    asyncio.run(letters(["a", "b"]))
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    words = ("events", "drop", "--all", "--store", "events.db")

    text = terminal(100, *words, *([answer] if answer == "--yes" else []))

    assert ("delete all selected events that are dead?" in text) == (answer != "--yes")
    assert asyncio.run(letters([])) == (2 if answer == "n\n" else 0)


def test_no_in_json(here, terminal, monkeypatch):
    """A "no" is an error as JSON, too."""
    asyncio.run(letters([]))
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))

    text = terminal(200, "events", "drop", "1", "--store", "events.db", "--json")

    assert json.loads(text[text.index("{") :])["error"]["message"] == "aborted"


# --- resume, and standard input


@pytest.fixture
def typed(monkeypatch):
    """Make a text the standard input."""

    def type_in(text):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    return type_in


def intent_of(invsvc, served, *steps):
    """Return the intent of a delete that was cut off, with the id of its webhook."""
    made = invsvc("write", *HOOK, "--json").json["value"]["id"]
    served.script("webhooks.delete", *steps)
    return invsvc("write", "webhooks.delete", made, "--json").json["intent"], made


@pytest.mark.parametrize("dash", [False, True])
def test_resume_of_a_write(invsvc, served, here, typed, dash):
    """It finds what was applied by reading, and sends nothing again."""
    intent, made = intent_of(invsvc, served, "apply, then reset")
    (here / "intent.json").write_text(json.dumps(intent))
    typed(json.dumps(intent))
    before = served.ask("/_simulator/arrivals?operation=webhooks.delete")

    ran = invsvc("resume", "-" if dash else "intent.json", "--json")

    assert (ran.code, ran.json["verdict"]) == (0, "applied")
    assert served.ask("/_simulator/arrivals?operation=webhooks.delete") == before
    assert invsvc("get", "webhooks", made).code == 1


@pytest.mark.slow
def test_files_from_standard_input(invsvc, typed, here):
    """A dash is standard input for an intent, a story, a batch, stored events and the writes of the demo."""
    line = {
        "operation": "journeys.update",
        "arguments": {"journey": "jrn_1", "name": "typed"},
        "key": "k",
    }
    told = invsvc(
        "write",
        "journeys.update",
        "jrn_1",
        "name=typed",
        "--json",
        "--story",
        "story.json",
    ).json
    typed(json.dumps(told["intent"]))
    assert invsvc("settle", "-").code == 0
    typed((here / "story.json").read_text())
    assert invsvc("explain", "-").code == 0
    typed(json.dumps(line))
    assert invsvc("batch", "-", "--journal", "run.db").code == 0
    typed(json.dumps({"body": '{"event":"payment.created","data":{"id":"pay_1"}}'}))
    assert "payment.created" in invsvc("listen", "--replay", "-").out
    typed(json.dumps(line))
    assert (
        invsvc("demo", "--input", "-", "--faults", "none", "--json").json["sdk"][
            "writes"
        ]
        == 1
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
@pytest.mark.parametrize("words", ["listen --replay pipe", "write --file pipe"])
def test_ctrl_c_while_a_pipe_is_silent(here, words):
    """It ends the command at once, although nothing has come from the pipe."""
    os.mkfifo("pipe")
    keys = {"INVSVC_BASE_URL": "http://127.0.0.1:1/v2", "INVSVC_API_KEY": "key"}
    running = child(*words.split(), env=ENVIRONMENT | keys)
    with (here / "pipe").open("wb"):  # once it is open at both ends, it is being read
        running.send_signal(signal.SIGINT)
        try:
            running.communicate(timeout=300)
        finally:
            running.kill()

    assert running.returncode in (1, 130, -signal.SIGINT)  # older typer: 1


# --- help, suggestions, completion


@pytest.mark.parametrize(
    "words",
    [("-h",), ("--help",), ("write", "-h"), ("batch", "-h"), ("batch", "run", "-h")],
)
def test_help_by_its_short_name(offline, words):
    """-h is --help, for each command."""
    ran = offline(*words)

    assert (ran.code, ran.err) == (0, "")
    assert ran.out == offline(*words[:-1], "--help").out


def test_summaries_in_the_help(offline):
    """Each command has a summary that is not cut."""
    text = offline("--help").out.partition("Commands:")[2]
    for group in ("batch", "events", "outbox"):
        text += offline(group, "--help").out.partition("Commands:")[2]

    assert "..." not in text
    assert re.search(
        "^  revive +Hand dead letters to the receiver again", text, re.MULTILINE
    )
    assert all(
        re.search(rf"^  {name} +[A-Z]\w+\b", text, re.MULTILINE) for name in COMMANDS
    )


def test_help_of_each_command(offline):
    """It has an example whose options exist, and names values as people do: files, seconds, numbers."""
    groups = [(name,) for name in COMMANDS]
    for words in groups:  # commands of groups are added
        text = offline(*words, "--help").out
        if (commands := text.partition("\nCommands:\n")[2]) and len(words) == 1:
            groups += [
                (*words, name)
                for name in re.findall(r"^  (\w+) ", commands, re.MULTILINE)
            ]
            continue
        flat = " ".join(text.split())
        (example, *_) = re.findall(
            f"`invsvc {' '.join(words).replace('batch run', 'batch')} ?([^`]*)`", flat
        )
        assert {*re.findall(r" (--[a-z-]+)", f" {example}")} <= {
            *re.findall(r"(--[a-z-]+)", text)
        }, words
        assert not re.search(r"<(int|str|path|float|list)|\[x>|range>|<=x", text), words
    assert len(groups) > 35


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    "words",
    ["", "batch run", "write", "console", "events list", "events show", "events drop"],
)
def test_help_on_a_terminal(monkeypatch, width, words):
    """It is readable on light and dark grounds, fits, and names values in one word."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(width))
    text = screened(run, [*words.split(), "--help"])
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    paragraphs = text.partition("╭")[0]

    assert "invsvc" in paragraphs
    assert not re.search(r"\x1b\[(?:\d+;)*4[0-8](?:;\d+)*m", text)  # a ground
    assert not re.search(r"\x1b\[(?:\d+;)*2(?:;\d+)*m *\w", paragraphs)  # dim words
    assert max(map(len, plain.splitlines())) <= width
    assert not re.search(r"x<=|\[\[|journal\|e", plain)


@pytest.mark.parametrize("words", ["outbox lst", "events list", "lst"])
def test_usage_error_on_a_terminal(offline, monkeypatch, words):
    """No word of it is dim or blue, which cannot be read on a dark ground."""
    monkeypatch.setenv("TERM", "xterm-256color")
    text = screened(run, words.split())
    styles = re.findall(r"\x1b\[([\d;]*)m", text)

    assert "Try" in text
    assert not {"2", "34"} & {part for style in styles for part in style.split(";")}


def test_note_on_a_terminal(monkeypatch):
    """It is as bright as any text."""
    monkeypatch.setenv("TERM", "xterm-256color")
    assert screened(note, "stopping").strip() == "stopping"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            "batch run w.jsonl --journal run.db --rate 0",
            "must be at least 0.001, not 0",
        ),
        ("serve --port 70000", "must be at least 0 and at most 65,535, not 70000"),
        ("demo --writes many", "must be a whole number, not 'many'"),
        ("serve --latency nan", "must be at least 0, not nan"),
        (
            "events show 99999999999999999999 --store events.db",
            "at most 9,223,372,036,854,775,807",
        ),
    ],
)
def test_number_that_is_not_possible(offline, here, words, complaint):
    """It is refused with its bounds, before anything is done."""
    (here / "w.jsonl").write_text("")
    ran = offline(*words.split())
    assert (ran.code, ran.out) == (2, "")
    assert complaint in ran.err


def test_column_that_is_narrowed_keeps_its_words(monkeypatch):
    """All words of a text are shown beside columns that may not be wrapped, and a table fits its terminal."""
    monkeypatch.setenv("COLUMNS", "100")
    text = "ValueError: the handler did not find the customer 4711 in our database"
    row = (
        "1",
        "dead",
        "invoice.created",
        "4B1F0000-0000-4000-8000-000000000001",
        "",
        "71 s",
        text,
    )
    titles = ("id", "state", "type", "key", "handler", "age", "reason")
    lines = printed(table, titles, [row], right=(0, 5)).splitlines()
    assert max(map(len, lines)) <= 100
    assert "handler  " not in lines[1]
    assert " ".join(line[-26:].strip() for line in lines[3:]).strip() == text


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        ("wirte webhooks.create", "Did you mean write?"),
        ("batch repot run.db", "Did you mean report"),
        ("write webhook.create", "Did you mean webhooks.create"),
        ("list invoice.egress", "Did you mean invoices.egress?"),
        ("list invoices.egress statuss=valid", "Did you mean status?"),
        ("list invoices.egress status=valdi", "Did you mean valid?"),
        (
            "write webhooks.create url=https://a.example events=invoice.creatd",
            "Did you mean invoice.created",
        ),
        ("write webhooks.create ulr=https://a.example", "Did you mean url?"),
        (
            "trigger invoice.creatd --to https://a.example",
            "Did you mean invoice.created",
        ),
    ],
)
def test_suggestion_for_a_wrong_word(invsvc, words, suggestion):
    """A word that is nearly right is named, and nothing is sent."""
    ran = invsvc(*words.split())

    assert (ran.code, ran.out) == (2, "")
    assert suggestion in ran.err


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("invsvc wri", ["write"]),
        ("invsvc write webhooks.c", ["webhooks.create"]),
        ("invsvc get users", ["users.get"]),
        ("invsvc write webhooks.create ur", ["url="]),
        ("invsvc list invoices.egress status=val", ["status=valid"]),
        ("invsvc write webhooks.create events=invoice.created,invoice.canc",
         ["events=invoice.created,invoice.canceled"]),
        # bash makes words of their own of "=" and ":"
        ("invsvc list invoices.egress status =", ["valid", "canceled", "cancelled"]),
        ("invsvc list invoices.egress status = val", ["valid"]),
        ("invsvc write webhooks.create url = https : //x events = invoice.created,invoice.canc",
         ["invoice.created,invoice.canceled"]),
        ("invsvc write webhooks.create status = active desc", ["description="]),
        ("invsvc write nonsense ur", []),
        ("invsvc list invoices.egress nonsense=val", []),
    ],
)  # fmt: skip
def test_completion(offline, monkeypatch, words, found):
    """A shell completes commands, operations, names of arguments, and values that the specification lists."""
    monkeypatch.setenv("_INVSVC_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))

    assert offline().out.split() == found


# --- errors as JSON


@pytest.mark.parametrize(
    ("words", "code", "facts"),
    [
        (
            "get users nobody --json",
            1,
            {"type": "NotFoundError", "status": 404, "code": "resource_not_found"},
        ),
        ("get nonsense x --json", 2, {"type": "InvalidRequestError"}),
        ("wirte --json", 2, {"type": "UsageError"}),
        ("list invoices.egress --json --wide=x", 2, {}),
        ("settle nofile.json --json", 2, {"type": "BadParameter"}),
        ("export invoices -o nowhere/x.csv --json", 1, {}),
    ],
)
def test_error_as_json(invsvc, words, code, facts):
    """With --json each error is a line of JSON on stderr, with its class and what is known of it."""
    ran = invsvc(*words.split())
    error = json.loads(ran.err)["error"]

    assert (ran.code, ran.out) == (code, "")
    assert error["message"]
    assert {name: error[name] for name in facts} == facts


def test_error_as_text_again(invsvc, capsys):
    """After the command, and in the next one without --json, errors are text."""
    invsvc("get", "users", "nobody", "--json")
    fail("after it")
    assert capsys.readouterr().err == "invsvc: after it\n"

    assert invsvc("get", "users", "nobody").err.startswith(
        "invsvc: users.get: HTTP 404"
    )


def test_dash_json_after_the_end_of_options(capsys, here):
    """After "--" the word is not an option."""
    assert called(capsys, "get", "nonsense", "--", "--json").err.startswith("invsvc: ")


def test_csv_of_text_that_would_steer_the_terminal(capsys):
    """On a terminal, control and bidi characters are shown as escapes; a file gets them as they are."""
    text = "\x1b]0;owned\x07\u202e"

    def listed():
        Sink(form="csv", columns=["description"]).take(
            Webhook.from_dict({"id": "wh_1", "description": text})
        )

    shown = screened(listed)
    listed()

    assert shown.splitlines() == ["description", r"\x1b]0;owned\x07\u202e"]
    assert capsys.readouterr().out.splitlines() == ["description", text]
