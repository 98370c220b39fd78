"""A table for real engines, the service that it is written to, and the judge of its results."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

from invsvc_async import Client, ReconcilePolicy, Timeouts
from invsvc_async.simulator import Faults
from invsvc_async.testing import serving
from tests.support.database import database
from tests.support.processes import below, command_of

ROWS = 500
CREATES = 60  # fewer than a list of webhooks shows
JOURNEYS = 60
FAULTS = Faults(rate=0.05, reads=0.01, late_up_to=0.2, hang=0.3)
LONG = 300.0  # s that nothing takes


def made():
    """Make the client of a worker, with short times."""
    policy = ReconcilePolicy(
        settle_after_error=0.5, settle_after_loss=1.0, reads_lag=0.1, deadline=60.0
    )
    return Client.from_env(
        reconcile=policy, timeout=Timeouts(attempt=3.0), on_secret=lambda *_: None
    )


def write_of(client, row):
    """Rename the journey of a row, or create a webhook."""
    if row["journey"]:
        return client.journeys.update(row["journey"], name=row["order"])
    return client.webhooks.create(url=row["thing"], events=["invoice.created"])


def sorted_frame(partition):
    """Sort a frame of pandas by time."""
    return partition.sort_values("at")


def sorted_table(block):
    """Sort a table of Arrow by time."""
    return block.sort_by("at")


def table(service, many=ROWS):
    """Return the rows: updates of journeys in turn, then creates."""
    journeys = [service.seed_journey()["id"] for _ in range(JOURNEYS)]
    rows = []
    for number in range(many):
        order = f"row-{number:04}"
        journey = journeys[number % JOURNEYS] if number < many - CREATES else ""
        thing = journey or f"https://rows.example/{order}"
        rows.append({"order": order, "at": number, "journey": journey, "thing": thing})
    return rows


@contextmanager
def service_for(name, patch, **settings):
    """Yield a service whose address and a journal in PostgreSQL are in the environment."""
    given = {"seed": 3, "faults": FAULTS, "latency": 0.03, **settings}
    with serving(**given) as service:
        here = str(Path.cwd())
        variables = {
            "INVSVC_BASE_URL": service.base_url, "INVSVC_API_KEY": service.api_key,
            "INVSVC_JOURNAL": database().at(namespace=name, silence=2), "PYTHONPATH": here,
            "PYSPARK_PYTHON": sys.executable,
        }  # fmt: skip
        for variable, value in variables.items():
            patch.setenv(variable, value)
        yield service


class Killer(threading.Thread):
    """Kills one process that *victims* finds, once the service has *after* effects."""

    def __init__(self, service, victims, after=150):
        super().__init__(daemon=True)
        self._service, self._victims, self._after = service, victims, after
        self.killed: float | None = None

    def run(self):
        until = time.monotonic() + LONG
        while time.monotonic() < until and self.killed is None:
            time.sleep(0.02)  # sleeps: a thread of its own
            if len(self._service.ledger.effects()) < self._after:
                continue
            for pid in self._victims()[:1]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.killed = time.monotonic()


def descendants(of, words):
    """Return the processes below *of* whose command lines have *words*, the youngest first."""
    return [pid for pid in reversed(below(of)) if words in command_of(pid)]


def judge(service, rows, results):
    """Compare the results of *rows*, by their keys, with the ledger; return the counts of verdicts."""
    assert set(results) == {row["order"] for row in rows}
    assert len(rows) == len(results)
    effects = Counter()
    last = {}
    for entry in service.ledger.effects():
        shown = entry.body.get("name") or entry.body["url"].rpartition("/")[2]
        effects[shown] += 1
        if entry.operation == "journeys.update":
            assert shown > last.get(entry.target, ""), "out of order"
            last[entry.target] = shown
    for key, result in results.items():
        assert effects[key] <= 1, f"{key}: {effects[key]} effects"
        if result["verdict"] != "unknown":
            assert (result["verdict"] == "applied") == bool(effects[key]), result
    return Counter(result["verdict"] for result in results.values())


def told(engine, began, ended, killed, counts):
    """Print the figures of a run."""
    after = 0.0 if killed is None else ended - killed
    rate = ROWS / (ended - began)
    print(  # noqa: T201 - figures of the session
        f"{engine}: {ROWS} rows in {ended - began:.1f} s ({rate:.0f} a second), {after:.1f} s of them after a "
        f"kill; {dict(counts)}"
    )
