"""Submit the tasks of ``examples/dask_tasks.py`` to a scheduler, with naive ones beside, and wait for them."""

from __future__ import annotations

import sys

from distributed import Client, wait

from examples.dask_tasks import register
from tests.engines.naive import create

if __name__ == "__main__":
    address, tasks = sys.argv[1], int(sys.argv[2])
    with Client(address) as cluster:
        keys = [f"order-{number}" for number in range(tasks)]
        ours = [
            cluster.submit(
                register, key, f"https://k.example/{key}", retries=20, pure=False
            )
            for key in keys
        ]
        naive = [cluster.submit(create, key, retries=20, pure=False) for key in keys]
        wait([*ours, *naive])
