"""The worker of ``examples/celery_tasks.py``, with naive tasks beside; as a program it submits tasks."""

from __future__ import annotations

import sys

from examples.celery_tasks import app, register
from tests.engines.naive import create

# A message that is not acknowledged so soon is given to another worker, also while its task still runs.
app.conf.update(
    broker_transport_options={"visibility_timeout": 3}, broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)  # fmt: skip
register.retry_backoff = False
register.default_retry_delay = 1


@app.task(name="naive", acks_late=True)
def naive(name: str) -> None:
    """Do the naive thing."""
    create(name)


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        key = f"order-{number}"
        register.apply_async((f"https://k.example/{key}",), task_id=key)
        naive.apply_async((key,))
