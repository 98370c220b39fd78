"""The long benchmarks run, on a small scale: nothing else would show that the package has left them behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.bench_large_events import fill_postgres, fill_sqlite, store_at
from tests.support.database import database

pytestmark = [pytest.mark.one_python, pytest.mark.untraced]

HERE = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "command",
    [
        "bench_aims 1 100 0",
        "bench_first_byte 2",
        "bench_journal postgres 100",
        "bench_journal workers 100",
        "bench_large_postgres 20000",
        "bench_limits store 1000",
        "bench_scale day 50",
        "bench_scale journal 300",
        "bench_scale processes 60",
    ],
)
def test_long_benchmark_on_a_small_scale(tmp_path, command):
    """It ends without an error, and no step is printed with one; whether a target is met is another matter."""
    module, *arguments = command.split()
    ran = subprocess.run(  # noqa: S603 - of this list
        [sys.executable, "-m", f"benchmarks.{module}", *arguments],
        cwd=HERE,
        env=os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "Traceback" not in ran.stderr
    assert ran.stdout
    assert "Error" not in ran.stdout


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_large_stores_of_events(tmp_path, kind):
    """The stores of its benchmark, which takes a minute at any size, are as the package makes them."""
    async with database().fresh("large_events") as fresh:
        address, fill = (
            (fresh, fill_postgres)
            if kind == "postgres"
            else (str(tmp_path / "e.db"), fill_sqlite)
        )
        await fill(address, 2000)
        store = store_at(address)
        await store.open()
        try:
            assert (await store.counts())["handled"] == 2000
        finally:
            await store.close()
