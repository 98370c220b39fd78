"""What the triggerer of Airflow runs for a deferred task, in this process, and what defers the task."""

from __future__ import annotations

import asyncio
import pkgutil
from functools import partial
from types import SimpleNamespace

import pytest

from invsvc_async import Client, ConfigurationError, InvsvcError, ReconcilePolicy

pytest.importorskip("airflow.triggers.base", reason="apache-airflow is not installed")

from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from invsvc_async.engines import airflow_task
from invsvc_async.engines.airflow import InvsvcWriteOperator
from invsvc_async.engines.airflow_trigger import path_of

pytestmark = pytest.mark.filterwarnings("default")


def made():
    policy = ReconcilePolicy(settle_after_error=0.1, settle_after_loss=0.3)
    return Client.from_env(reconcile=policy, on_secret=lambda *_: None)


@pytest.fixture
def service(service_in_environment):
    return service_in_environment


@pytest.fixture
def operator(monkeypatch):
    """Return what makes an operator, in the context of a task that runs."""
    ids = {"dag_id": "orders", "run_id": "r1", "task_id": "rename", "map_index": -1}
    context = {"ti": SimpleNamespace(**ids, max_tries=2)}
    # reaches: only a worker of Airflow has a context
    monkeypatch.setattr(airflow_task, "get_current_context", lambda: context)

    def make(journey, name, client=made):
        return InvsvcWriteOperator(
            task_id="rename", operation="journeys.update", client=client, deferrable=True, key=name,
            arguments={"journey": journey, "name": name},
        )  # fmt: skip

    return make


def event_of(operator):
    """Defer the task, make its trigger as the triggerer does, and return its first event."""
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute({})
    assert deferred.value.method_name == "execute_complete"
    path, given = deferred.value.trigger.serialize()
    trigger = pkgutil.resolve_name(path)(**given)
    return asyncio.run(_first(trigger)).payload


async def _first(trigger):
    return await anext(trigger.run())


def test_deferred_write(service, operator):
    """It has one effect, however often its trigger runs, and the task returns the result."""
    journey = service.seed_journey()["id"]
    task = operator(journey, "May")
    first, again = event_of(task), event_of(task)
    assert (first["result"]["verdict"], first["result"]["replayed"]) == (
        "applied",
        False,
    )
    assert again["result"]["replayed"]
    assert task.execute_complete({}, again)["id"] == journey
    assert len(service.ledger.effects("journeys.update")) == 1


def test_deferred_write_that_fails(service, operator):
    """What is refused ends the task; what another run may apply has it run again."""
    task = operator("jrn_gone", "May")
    with pytest.raises(AirflowFailException, match="404"):
        task.execute_complete({}, event_of(task))

    journey = service.seed_journey()["id"]
    service.script("journeys.update", "reset", "reset")
    task = operator(journey, "June")
    with pytest.raises(InvsvcError, match="WriteNotAppliedError"):
        task.execute_complete({}, event_of(task))
    assert task.execute_complete({}, event_of(task))["verdict"] == "applied"


def test_secret_that_nobody_would_get(service, operator):
    """Without ``on_secret``, no webhook is created, and the task is not run again."""
    task = operator("", "", client=Client.from_env)
    task.operation = "webhooks.create"
    task.arguments = {"url": "https://k.example/1", "events": ["invoice.created"]}
    with pytest.raises(AirflowFailException, match="on_secret: is not set"):
        task.execute_complete({}, event_of(task))
    assert service.arrivals("webhooks.create") == 0


def test_client_that_the_triggerer_cannot_import(service, operator):
    """It is refused in words before anything is deferred."""
    with pytest.raises(AirflowFailException, match="client: the triggerer cannot"):
        operator("jrn_1", "May", client=partial(made)).execute({})
    with pytest.raises(ConfigurationError, match="the triggerer cannot import it"):
        path_of(partial(made))
    assert pkgutil.resolve_name(path_of(Client.from_env)) == Client.from_env
