"""DAGs that the tests have Airflow run: tasks that fail after their write, without a key, and operators."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import dag, get_current_context, task

from invsvc_async import Client, ReconcilePolicy
from invsvc_async.engines.airflow import InvsvcHook, InvsvcWriteOperator

EVENTS = ["invoice.created"]
AGAIN = {"retries": 2, "retry_delay": timedelta(0)}
START = datetime(2026, 1, 1, tzinfo=UTC)


def made() -> Client:
    policy = ReconcilePolicy(settle_after_error=0.1, settle_after_loss=0.3)
    return Client.from_env(reconcile=policy, on_secret=lambda *_: None)


def fail_in_first_try() -> None:
    """Fail, in the first try since the task was cleared, as one whose process is killed."""
    here = get_current_context()["ti"]
    if here.max_tries - here.try_number == AGAIN["retries"] - 1:
        raise RuntimeError("after the write")


@task(**AGAIN)
def register(order: str) -> str:
    with InvsvcHook(client=made) as invsvc:
        url = f"https://k.example/{order}"
        write = invsvc.client.webhooks.create(url=url, events=EVENTS)
        made_id = invsvc.send(write, key=order).id
    fail_in_first_try()
    return made_id


@task(**AGAIN)
def without_key(order: str) -> None:
    with InvsvcHook(client=made) as invsvc:
        url = f"https://k.example/{order}"
        invsvc.send(invsvc.client.webhooks.create(url=url, events=EVENTS))


@dag(schedule=None, start_date=START)
def mapped() -> None:
    register.expand(order=["order-1", "order-2"])


@dag(schedule=None, start_date=START)
def keyless() -> None:
    without_key.expand(order=["order-1"])


@dag(schedule=None, start_date=START)
def operators() -> None:
    journey = os.environ.get("JOURNEY", "jrn_1")
    rename = {"operation": "journeys.update", "client": made, **AGAIN}
    InvsvcWriteOperator(
        task_id="rename",
        arguments={"journey": journey, "name": "{{ run_id }}"},
        **rename,
    )
    InvsvcWriteOperator(
        task_id="refused", arguments={"journey": "jrn_gone", "name": "x"}, **rename
    )
    InvsvcWriteOperator.partial(
        task_id="created", operation="webhooks.create", client=made, **AGAIN
    ).expand_kwargs(
        [
            {
                "key": name,
                "arguments": {"url": f"https://k.example/{name}", "events": EVENTS},
            }
            for name in ("a", "b")
        ]
    )


@dag(schedule=None, start_date=START)
def connected() -> None:
    InvsvcWriteOperator(
        task_id="renamed", operation="journeys.update", conn_id="billing",
        arguments={"journey": os.environ.get("JOURNEY", "jrn_1"), "name": "x"},
    )  # fmt: skip


DAGS = {each().dag_id: each for each in (mapped, keyless, operators, connected)}
