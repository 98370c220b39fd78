"""What ``import invsvc_async`` costs: nothing that only an extra, or one part of the package, needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.untraced

HEAVY = {
    "typer",
    "rich",
    "pyarrow",
    "opentelemetry",
    "asyncpg",
    "sqlite3",
    "aiohttp.web",
}
USE = "import invsvc_async as i; i.Client('https://host.example/v2', i.ApiKey('token')).webhooks"


def imported(code):
    """Return the modules that *code* loads: those that Python times, and those that it imports by name."""
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-c",
        f"import sys; {code}; print(*sys.modules)",
    ]
    ran = subprocess.run(  # noqa: S603
        command,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    return {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()} | set(
        ran.stdout.split()
    )


def test_import_of_the_package() -> None:
    """It loads neither a client nor anything heavy."""
    names = imported("import invsvc_async")

    assert "invsvc_async" in names
    assert not HEAVY & names
    assert "invsvc_async.client" not in names


def test_import_of_what_a_client_needs() -> None:
    """A client and a resource of it load nothing heavy either."""
    names = imported(USE)

    assert "invsvc_async.client" in names
    assert not HEAVY & names
