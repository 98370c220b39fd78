"""A DAG with the tasks of ``examples/airflow_tasks.py``, and naive ones beside; it runs once."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import dag, task

from examples.airflow_tasks import register
from tests.engines.naive import create

SOON = timedelta(seconds=1)


@dag(schedule="@once", start_date=datetime(2026, 1, 1, tzinfo=UTC))
def orders() -> None:
    keys = [f"order-{number}" for number in range(int(os.environ["TASKS"]))]
    register.override(retry_delay=SOON).expand(
        url=[f"https://k.example/{key}" for key in keys]
    )
    task(retries=20, retry_delay=SOON)(create).expand(name=keys)


orders()
