"""The tests of the FastAPI application, which are an example too, pass on a database."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.docs.pages import PLUGIN_LOOPS, ROOT
from tests.support.database import database

pytestmark = pytest.mark.untraced


def test_tests_of_the_shop(tmp_path) -> None:
    """All of them run, as they would beside an application, by this package's plugin."""
    pytest.importorskip("fastapi")
    loops = [
        part
        for name, value in PLUGIN_LOOPS.items()
        for part in ("-o", f"{name}={value}")
    ]
    options = f"-q -c {os.devnull} --rootdir={tmp_path} -p no:cacheprovider -p asyncio".split()
    plugin = "-p", "invsvc_async.pytest_plugin"
    command = [
        sys.executable,
        "-m",
        "pytest",
        *plugin,
        *options,
        *loops,
        str(ROOT / "examples/test_shop.py"),
    ]
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TEST_DATABASE_URL": database().address
    }  # fmt: skip
    ran = subprocess.run(  # noqa: S603
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout
    assert "skipped" not in ran.stdout
