"""Deferred tasks of a whole Airflow: its scheduler, worker and triggerer are processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.free_port import free_port
from tests.support.processes import kill_session
from tests.support.waiting import block_until

pytest.importorskip("airflow.triggers.base", reason="apache-airflow is not installed")

pytestmark = pytest.mark.filterwarnings("default")

HERE = Path(__file__).parent
TASKS = ["lost", "refused", *(f"rename-{number}" for number in range(4))]


@contextmanager
def standalone(home, journey):
    """Run Airflow with the DAG of deferred tasks, in a session of its own, until the block ends."""
    port = free_port()
    settings = {
        "AIRFLOW_HOME": home,
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": port,
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": False,
        "AIRFLOW__CORE__DAGS_FOLDER": home / "dags",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__CORE__LOAD_EXAMPLES": False,
        "AIRFLOW__CORE__PARALLELISM": 2,
        # what is logged is compared, and another file of tests sets a higher level
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": free_port(),
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": free_port(),
        "JOURNEY": journey,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": HERE.parents[1],
    }
    (home / "dags").mkdir()
    shutil.copy(HERE / "airflow_deferred.py", home / "dags")
    texts = {name: str(value) for name, value in settings.items()}
    with (home / "log").open("w") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "airflow", "standalone"], env={**os.environ, **texts},
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        yield
    finally:
        kill_session(child)


def states(home):
    """Return the state of each task, once no task goes on."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(home / "airflow.db")) as data:
        found = dict(data.execute("SELECT task_id, state FROM task_instance"))
        if len(found) == len(TASKS) and set(found.values()) <= {"success", "failed"}:
            return found
    return None


def results(home):
    """Return what the tasks returned."""
    with closing(sqlite3.connect(home / "airflow.db")) as data:
        found = data.execute("SELECT task_id, value FROM xcom").fetchall()
    return {name: json.loads(value) for name, value in found}


def test_deferred_tasks(service_in_environment, tmp_path):
    """The triggerer sends each write once, also after a lost answer; a refused one fails."""
    service = service_in_environment
    journey = service.seed_journey()["id"]
    service.script("webhooks.create", "apply, then reset")
    with standalone(tmp_path, journey):
        try:
            found = block_until(lambda: states(tmp_path), every=1.0, within=400.0)
        except TimeoutError:
            pytest.fail((tmp_path / "log").read_text()[-5000:])
    assert found == dict.fromkeys(TASKS, "success") | {"refused": "failed"}
    renamed = [each.body["name"] for each in service.ledger.effects("journeys.update")]
    assert sorted(renamed) == [name for name in TASKS if name.startswith("rename")]
    assert len(service.ledger.effects("webhooks.create")) == 1
    # each had a log of the triggerer, where its write was sent
    logs = {path.parent.name for path in tmp_path.glob("logs/**/*.trigger.*.log")}
    assert logs == {f"task_id={name}" for name in TASKS}
    verdicts = {name: told["verdict"] for name, told in results(tmp_path).items()}
    assert verdicts == {name: "applied" for name in TASKS if name != "refused"}
