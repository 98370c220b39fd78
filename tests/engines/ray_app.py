"""Run the tasks of ``examples/ray_tasks.py`` on a Ray of their own, with naive ones beside, and wait for them."""

from __future__ import annotations

import sys

import ray

from examples.ray_tasks import register
from tests.engines.naive import create

if __name__ == "__main__":
    ray.init(num_cpus=6, include_dashboard=False, object_store_memory=100_000_000)
    naive = ray.remote(max_retries=20)(create)
    waiting = []
    for number in range(int(sys.argv[1])):
        key = f"order-{number}"
        waiting += [register.remote(key, f"https://k.example/{key}"), naive.remote(key)]
    # also after errors, such as lost secrets
    ray.wait(waiting, num_returns=len(waiting))
    ray.shutdown()
