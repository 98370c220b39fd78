"""Tasks that Airflow itself runs, in this process: retries, cleared tasks, mapped ones, and connections."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from tests.engines.programs import program_of
from tests.support.database import database

if importlib.util.find_spec("airflow") is None:
    pytest.skip("apache-airflow is not installed", allow_module_level=True)

HOME = Path(tempfile.mkdtemp(prefix="airflow"))  # which it reads when it is imported
FOLDER = HOME / "dags"
FOLDER.mkdir()
PROGRAM = FOLDER / "invoicing.py"
PROGRAM.write_text(program_of("airflow"), encoding="utf-8")
(FOLDER / "airflow_dags.py").write_text(
    Path(__file__).with_name("airflow_dags.py").read_text(encoding="utf-8"),
    encoding="utf-8",
)
os.environ.update(
    AIRFLOW_HOME=str(HOME), AIRFLOW__CORE__DAGS_FOLDER=str(FOLDER), AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__CORE__UNIT_TEST_MODE="False", AIRFLOW__LOGGING__LOGGING_LEVEL="ERROR",
)  # fmt: skip
sys.path.insert(0, str(FOLDER))

import airflow_dags  # noqa: E402 - it reads the environment
from airflow.models.taskinstance import TaskInstance, clear_task_instances  # noqa: E402 - as above
from airflow.sdk.definitions.dag import _run_task  # noqa: E402 - as above
from airflow.utils.db import initdb  # noqa: E402 - as above
from airflow.utils.session import create_session  # noqa: E402 - as above
from sqlalchemy import select  # noqa: E402 - as above

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module", autouse=True)
def tables():
    initdb()


@pytest.fixture
def service(service_in_environment):
    return service_in_environment


def ran(name):
    """Run a DAG, with its retries; return it and the states of its tasks with the numbers of their tries."""
    dag = airflow_dags.DAGS[name]()
    run = dag.test()
    return dag, run.run_id, states(run.run_id)


def states(run_id):
    with create_session() as session:
        found = session.scalars(
            select(TaskInstance).where(TaskInstance.run_id == run_id)
        )
        return {
            (each.task_id, each.map_index): (each.state, each.try_number)
            for each in found
        }


def clear_and_run(dag, run_id):
    """Clear all tasks of a run, and run each of them until it has ended, as the scheduler does."""
    chosen = select(TaskInstance).where(TaskInstance.run_id == run_id)
    with create_session() as session:
        clear_task_instances([*session.scalars(chosen)], session)
    for _ in range(3):
        with create_session() as session:
            due = [
                each
                for each in session.scalars(chosen)
                if each.state not in {"success", "failed"}
            ]
            for each in due:
                each.try_number += 1
                each.state = "scheduled"
            session.flush()
            session.expunge_all()
        for each in due:
            _run_task(ti=each, task=dag.task_dict[each.task_id])


def test_retry_and_clearing(service):
    """A retry resumes, so that each task has one effect; a cleared one starts over, and is retried as well."""
    dag, run_id, found = ran("mapped")
    assert found == {("register", 0): ("success", 2), ("register", 1): ("success", 2)}
    assert effects(service) == {"order-1": 1, "order-2": 1}

    for cleared in (1, 2):
        clear_and_run(dag, run_id)
        assert effects(service) == {"order-1": 1 + cleared, "order-2": 1 + cleared}
    assert set(states(run_id).values()) == {("success", 6)}


def effects(service):
    return Counter(
        each.body["url"].rpartition("/")[2]
        for each in service.ledger.effects("webhooks.create")
    )


def test_mapped_task_without_key(service):
    """It is refused in words, and not tried again."""
    _, _, found = ran("keyless")
    assert found == {("without_key", 0): ("failed", 1)}
    assert not service.ledger.effects()


def test_operators(service, monkeypatch):
    """Templates are filled in; what the service refuses is not tried again; mapped ones have keys of the data."""
    monkeypatch.setenv("JOURNEY", service.seed_journey()["id"])
    _, run_id, found = ran("operators")
    assert found == {
        ("rename", -1): ("success", 1), ("refused", -1): ("failed", 1),
        ("created", 0): ("success", 1), ("created", 1): ("success", 1),
    }  # fmt: skip
    [renamed] = service.ledger.effects("journeys.update")
    assert renamed.body["name"] == run_id
    assert effects(service) == {"a": 1, "b": 1}


def test_connection(service, monkeypatch):
    """The client is made of it, with the journal of its extra."""
    monkeypatch.setenv("JOURNEY", service.seed_journey()["id"])
    extra = {"journal": os.environ["INVSVC_JOURNAL"]}
    connection = {"host": service.base_url, "password": service.api_key, "extra": extra}
    for name in ("INVSVC_BASE_URL", "INVSVC_API_KEY", "INVSVC_JOURNAL"):
        monkeypatch.delenv(name)
    monkeypatch.setenv(
        "AIRFLOW_CONN_BILLING", json.dumps({"conn_type": "invsvc", **connection})
    )
    _, _, found = ran("connected")
    assert found == {("renamed", -1): ("success", 1)}
    assert len(service.ledger.effects("journeys.update")) == 1


def test_program_of_the_docstring(service, monkeypatch):
    """As a file in the folder of DAGs it runs, but for a journey that is not there."""
    monkeypatch.setenv("INVSVC_JOURNAL", database().at(namespace="airflow-doc"))
    import invoicing

    run = invoicing.invoicing().test()
    found = states(run.run_id)
    assert {found["register", index][0] for index in range(2)} == {"success"}
    assert effects(service) == {"order-17": 1, "order-18": 1}
