"""The command line imports what a command needs, and not much more."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer.main

from invsvc_async.cli import main
from invsvc_async.cli.app import COMMANDS, app

pytestmark = pytest.mark.one_python

HEAVY = {"aiohttp", "cattrs", "rich"}
HEAVY |= {
    f"invsvc_async.{name}" for name in ("client", "models.common", "reconcile.history")
}


def modules_after(code, *arguments):
    """Return the modules that a program has imported at its end."""
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)", *arguments],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert not done.stderr
    return set(done.stdout.splitlines()[-1].split())


def imported_by(*arguments):
    """Return the modules that one run of the command line imports."""
    return modules_after(
        "from invsvc_async.cli.app import run; run(sys.argv[1:])", *arguments
    )


def test_help_imports_no_command():
    """The list of commands needs neither a command, nor a client, nor an event loop."""
    found = imported_by("--help")
    assert not found & {*HEAVY, "asyncio"}
    assert not {name for name in found if name.startswith("invsvc_async.cli.commands")}


@pytest.mark.parametrize("group", ["batch", "outbox", "journal"])
def test_help_of_a_group_imports_no_store(group):
    """It needs the options of its commands, and nothing that reads or sends."""
    found = imported_by(group, "--help")
    assert not found & HEAVY
    assert not {
        name
        for name in found
        if name.startswith(("invsvc_async.durable", "invsvc_async.storage.sqlite"))
    }


def test_client_imports_no_rules():
    """What only writes, answers in doubt or some settings need waits until then."""
    later = "reconcile.history reconcile.facts writes.driver concurrency.adaptive_limit transport.proxy"
    found = modules_after("from invsvc_async import ApiKey, Client")
    assert not {"cattrs", *(f"invsvc_async.{name}" for name in later.split())} & found


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_json(name):
    """`--json` is an option of each command, and of each of its subcommands."""
    command = typer.main.get_command(app).get_command(None, name)
    for each in getattr(command, "commands", {name: command}).values():
        assert "--json" in {option for param in each.params for option in param.opts}, (
            each.name
        )


@pytest.mark.parametrize("name", COMMANDS)
def test_summary_in_the_list_of_commands(name):
    """It is the first sentence of the command's own help, with which the list would be slower to print."""
    command = typer.main.get_command(app).get_command(None, name)
    assert command.short_help == COMMANDS[name]


@pytest.mark.usefixtures("invsvc")
def test_get_imports_no_display():
    """Where nothing is a terminal, a read with ``--json`` needs no rich, pydantic or decoder of bad fields."""
    found = imported_by("get", "webhooks.health", "--json")
    assert not {
        name
        for name in found
        if name.partition(".")[0] in {"rich", "cattrs", "pydantic"}
    }


def test_ctrl_c_while_modules_are_imported(monkeypatch):
    """It ends the program as later on, without a traceback."""

    class Slow:
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "invsvc_async.cli.app", Slow())
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


def test_ctrl_c_before_a_command_begins(monkeypatch):
    """It ends the program without a traceback, also while the arguments are read."""

    def interrupted():
        raise KeyboardInterrupt

    # reaches: Ctrl-C at a moment of the start that no signal hits
    monkeypatch.setattr("invsvc_async.cli.app._prepare_standard_streams", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
