"""A DAG of deferred tasks, which runs once; the triggerer imports the function that makes its client."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import dag

from invsvc_async.engines.airflow import InvsvcWriteOperator
from tests.engines.tables import made

# Airflow also runs a task again whose trigger was faster than the notice that it is deferred.
HOW = {
    "client": made,
    "deferrable": True,
    "retries": 20,
    "retry_delay": timedelta(seconds=1),
}


def rename(name: str, journey: str) -> None:
    """Add a task that renames *journey*."""
    InvsvcWriteOperator(
        task_id=name, operation="journeys.update", arguments={"journey": journey, "name": name}, **HOW,
    )  # fmt: skip


@dag(schedule="@once", start_date=datetime(2026, 1, 1, tzinfo=UTC))
def deferred() -> None:
    for number in range(4):
        rename(f"rename-{number}", os.environ["JOURNEY"])
    rename("refused", "jrn_gone")
    InvsvcWriteOperator(
        task_id="lost", operation="webhooks.create",
        arguments={"url": "https://k.example/lost", "events": ["invoice.created"]}, **HOW,
    )  # fmt: skip


deferred()
