"""A run that is interrupted leaves nothing behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import block_until
from tests.support.watchdog import MARK, WRITTEN

pytestmark = [
    pytest.mark.untraced,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

TEST = """
import subprocess, sys
from tests.support.database import database

def test_that_hangs():
    server = database()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    with open({told!r}, "w") as file:
        file.write(f"{{server._server.pgdata}} {{server._server.get_pid()}} {{child.pid}}\\n")
    child.wait()
"""


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, signal.SIGTERM, signal.SIGKILL],
    ids=lambda each: each.name,
)
@pytest.mark.parametrize("workers", ["0", "1"])
def test_run_that_is_interrupted(number, workers, tmp_path):
    """Its PostgreSQL server and the programs of its tests end, and the folder of the server is deleted."""
    told, test = (
        tmp_path / "told",
        Path(__file__).parent / f"{WRITTEN}{os.getpid()}_{workers}_{number}.py",
    )
    test.write_text(TEST.format(told=str(told)))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-n",
        workers,
        str(test),
    ]
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTEST_")
    }
    try:
        with subprocess.Popen(  # noqa: S603
            command,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as running:
            block_until(lambda: told.exists() and told.read_text().endswith("\n"))
            folder, *numbers = told.read_text().split()
            running.send_signal(number)
            running.wait(60)
        block_until(
            lambda: not any(Path(f"/proc/{each}").exists() for each in numbers),
            within=60,
        )
        block_until(lambda: not Path(folder).exists(), within=60)
    finally:
        test.unlink()


def test_programs_of_tests_are_marked():
    """What a test starts can be found."""
    assert len(os.environ[MARK]) == 32
