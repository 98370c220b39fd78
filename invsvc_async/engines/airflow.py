"""
Tasks of Airflow whose writes have one effect, however often Airflow runs them, until the task is cleared.

As a file in the folder of DAGs, with ``INVSVC_BASE_URL``, ``INVSVC_API_KEY`` and
``INVSVC_JOURNAL=postgresql://…`` set for the workers::

    from datetime import datetime, timedelta

    from airflow.sdk import dag, task

    from invsvc_async.engines.airflow import InvsvcHook, InvsvcWriteOperator

    AGAIN = {"retries": 20, "retry_delay": timedelta(seconds=30)}


    @task(**AGAIN)
    def register(order: str) -> str:
        with InvsvcHook() as invsvc:
            write = invsvc.client.webhooks.create(
                url=f"https://me.example/{order}", events=["invoice.created"]
            )
            return invsvc.send(write, key=order).id


    @dag(schedule=None, start_date=datetime(2026, 1, 1))
    def invoicing():
        register.expand(order=["order-17", "order-18"])
        InvsvcWriteOperator(
            task_id="rename",
            operation="journeys.update",
            arguments={"journey": "jrn_1", "name": "{{ run_id }}"},
            **AGAIN,
        )


    invoicing()

A retry goes on with the write of the task. A task that is *cleared* starts over: it does the write anew. One
that is cleared while it runs goes on, because its write may be under way.

Airflow itself may leave a task queued for good: one that a process of its LocalExecutor has taken, if that
process is killed before the task starts (seen in Airflow 3.3). The task runs once the scheduler is started
again.
"""

from __future__ import annotations

from invsvc_async.engines.airflow_hook import InvsvcHook
from invsvc_async.engines.airflow_operator import InvsvcWriteOperator

__all__ = ["InvsvcHook", "InvsvcWriteOperator"]
