"""
Programs that write one table, each on an engine: the module for it, beside plain aiohttp; and a batch.

    python -m tests.soak.table_programs spark | ray | dask | batch keyed | plain FOLDER

The table is ``rows.jsonl`` in the folder.  The program prints ``ready`` once its engine has the rows, divided by
their things and sorted; it begins when it is told to, puts the results into ``results.jsonl``, and prints ``done``.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from zlib import crc32

import aiohttp

from invsvc_async import Client, ReconcilePolicy, Timeouts
from invsvc_async.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from invsvc_async import Write

PARTS = 4  # two for each process: each ends with a wait for its last lost answers
AT_ONCE = 50  # writes of one process
WORKERS = 2
BATCH_WORKERS = "table_programs batch-(run|work)"  # their command lines
KILLS = 1_000  # that an engine bears
Row = dict[str, Any]
# fewer of what a lost reply makes uncertain, so that runs are short
POLICY = ReconcilePolicy(
    settle_after_error=0.5, settle_after_loss=1.0, reads_lag=0.1, deadline=120.0
)


def made() -> Client:
    """Make the client of a worker, with short times."""
    timeouts = Timeouts(attempt=3.0)
    return Client.from_env(
        reconcile=POLICY, timeout=timeouts, on_secret=lambda _key, _webhook: None
    )


def write_of(client: Client, row: Row) -> Write[Any]:
    """Change the webhook of a row, or create one; note the time where that is wanted."""
    if folder := os.environ.get("GIVEN"):
        with Path(folder, f"given.{os.getpid()}").open("a") as notes:
            notes.write(f"{time.time()} {row['order']}\n")
    if row["webhook"]:
        return client.webhooks.update(row["webhook"], description=row["text"])
    return client.webhooks.create(url=row["thing"], events=["invoice.created"])


def plainly(rows: Iterable[Row]) -> list[Row]:
    """Send the same requests with aiohttp, as many at once, and look at no answer but its status."""
    return asyncio.run(_plainly(list(rows)))


async def _plainly(rows: list[Row]) -> list[Row]:
    base = os.environ["INVSVC_BASE_URL"]
    head = {"Authorization": f"Bearer {os.environ['INVSVC_API_KEY']}"}
    waiting = iter(rows)
    results: list[Row] = []

    async def work(session: aiohttp.ClientSession) -> None:
        for row in waiting:
            if row["webhook"]:
                method, url = "PUT", f"{base}/webhooks/{row['webhook']}"
                body = {"description": row["text"]}
            else:
                method, url = "POST", f"{base}/webhooks"
                body = {"url": row["thing"], "events": ["invoice.created"]}
            text = json.dumps(body, separators=(",", ":"))
            typed = {"Content-Type": "application/json"}
            async with session.request(method, url, data=text, headers=typed) as answer:
                await answer.json()
                verdict = "applied" if answer.status < 300 else "refused"
            results.append({"key": row["order"], "verdict": verdict})

    async with aiohttp.ClientSession(headers=head) as session:
        await asyncio.gather(*(work(session) for _ in range(AT_ONCE)))
    return results


class Engine:
    """An engine that has the rows of a table, and sends them when it is told."""

    def __init__(self, stack: ExitStack, rows: list[Row], *, keyed: bool) -> None:
        """Start the engine, and divide the rows."""
        raise NotImplementedError

    def send(self) -> list[Row]:
        """Send all rows, and return their results."""
        raise NotImplementedError


class Spark(Engine):
    """Spark with two tasks at once, in one program."""

    master = f"local[{WORKERS},{KILLS}]"
    more: ClassVar[dict[str, str]] = {}

    def __init__(self, stack: ExitStack, rows: list[Row], *, keyed: bool) -> None:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(self.master)
        settings = {"ui.enabled": "false", "task.maxFailures": str(KILLS), **self.more}
        for name, value in settings.items():
            builder = builder.config(f"spark.{name}", value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        stack.callback(session.stop)
        frame = session.createDataFrame(rows).repartition(PARTS, "thing")
        self._frame = frame.sortWithinPartitions("at").cache()
        self._frame.count()
        self._keyed = keyed

    def send(self) -> list[Row]:
        from invsvc_async.engines.spark import RESULTS, send_frame

        if self._keyed:
            results = send_frame(self._frame, write_of, key="order", client=made)
        else:
            results = self._frame.mapInArrow(_plain_batches, RESULTS)
        return [row.asDict() for row in results.collect()]


def _plain_batches(batches: Iterable[Any]) -> Iterator[Any]:
    import pyarrow as pa

    from invsvc_async.engines.rows import RESULT_SCHEMA

    found = plainly(row for batch in batches for row in batch.to_pylist())
    empty = dict.fromkeys(RESULT_SCHEMA.names)
    yield pa.RecordBatch.from_pylist(
        [empty | row for row in found], schema=RESULT_SCHEMA
    )


class Ray(Engine):
    """Ray Data with two actors."""

    def __init__(self, stack: ExitStack, rows: list[Row], *, keyed: bool) -> None:
        import pyarrow as pa
        import ray

        ray.init(
            num_cpus=4, include_dashboard=False, object_store_memory=200_000_000, log_to_driver=False,
            # 15 by default: beside anything else, its actors would wait, and those of other engines not
            _system_config={"worker_niceness": 0},
        )  # fmt: skip
        stack.callback(ray.shutdown)
        ray.data.DataContext.get_current().enable_progress_bars = False
        tables = [pa.Table.from_pylist(part) for part in parts_of(rows)]
        self._rows = ray.data.from_arrow(tables).materialize()
        self._keyed = keyed

    def send(self) -> list[Row]:
        from invsvc_async.engines.ray import WriteRows

        how: dict[str, Any] = {"batch_size": None, "concurrency": WORKERS}
        if self._keyed:
            results = self._rows.map_batches(
                WriteRows, fn_constructor_args=(write_of,),
                fn_constructor_kwargs={"key": "order", "client": made}, **how,
            )  # fmt: skip
        else:
            results = self._rows.map_batches(_PlainTables, **how)
        return list(results.take_all())


class _PlainTables:
    def __call__(self, columns: dict[str, Any]) -> Any:
        import pyarrow as pa

        plain = {name: column.tolist() for name, column in columns.items()}
        rows = [
            dict(zip(plain, each, strict=True))
            for each in zip(*plain.values(), strict=True)
        ]
        return pa.Table.from_pylist(plainly(rows))


class Dask(Engine):
    """Dask with two processes, which are started again when they are killed."""

    def __init__(self, stack: ExitStack, rows: list[Row], *, keyed: bool) -> None:
        import dask
        import dask.dataframe as dd
        import pandas as pd
        from distributed import Client as Cluster

        dask.config.set({"distributed.scheduler.allowed-failures": KILLS})
        # The default is 15 s: a cluster of this machine looks for a killed worker after that time, and gives
        # its place up if the worker there was killed again just before, and is about to start.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"})
        self._cluster = stack.enter_context(
            Cluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None)
        )
        # after a kill, made again of what this program has, as of a file
        parts = [dask.delayed(pd.DataFrame(part)) for part in parts_of(rows)]
        self._frame = dd.from_delayed(parts)
        self._keyed = keyed

    def send(self) -> list[Row]:
        from invsvc_async.engines.dask import send_frame

        if self._keyed:
            results = send_frame(self._frame, write_of, key="order", client=made)
        else:
            meta = {"key": "string", "verdict": "string"}
            results = self._frame.map_partitions(_plain_frame, meta=meta)
        found = self._cluster.compute(results, retries=KILLS).result()
        return list(found.to_dict("records"))


def _plain_frame(partition: Any) -> Any:
    import pandas as pd

    return pd.DataFrame(
        plainly(partition.to_dict("records")), columns=["key", "verdict"]
    )


class BatchWorkers(Engine):
    """A batch on two processes, which are started again when they are killed."""

    def __init__(self, stack: ExitStack, rows: list[Row], *, keyed: bool) -> None:
        del stack, keyed
        lines = [{**_operation(row), "key": row["order"]} for row in rows]
        self._file = Path("batch.jsonl")
        self._file.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def send(self) -> list[Row]:
        return asyncio.run(self._sent())

    async def _sent(self) -> list[Row]:
        ended = asyncio.Event()
        working = asyncio.create_task(_kept("batch-work", str(self._file), ended))
        await _kept("batch-run", str(self._file), ended)
        ended.set()
        await working
        async with made() as client, _batch(client) as batch:
            return [
                {"key": result.key, "verdict": str(result.verdict)}
                async for result in batch.results()
            ]


def _operation(row: Row) -> Row:
    if row["webhook"]:
        arguments = {"webhook": row["webhook"], "description": row["text"]}
        return {"operation": "webhooks.update", "arguments": arguments}
    arguments = {"url": row["thing"], "events": ["invoice.created"]}
    return {"operation": "webhooks.create", "arguments": arguments}


def _batch(client: Client) -> Batch:
    return Batch.open(
        os.environ["BATCH"],
        client,
        concurrency=AT_ONCE,
        on_secret=lambda _key, _hook: None,
    )


async def _kept(what: str, file: str, ended: asyncio.Event) -> None:
    """Run one worker of the batch, again whenever it is killed, until it or the batch has ended."""
    while not ended.is_set():
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.soak.table_programs", what, "keyed", file
        )
        waits = {
            asyncio.ensure_future(child.wait()),
            asyncio.ensure_future(ended.wait()),
        }
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if child.returncode is None:
            child.terminate()
            await child.wait()
        if child.returncode == 0:
            return
        if child.returncode != -signal.SIGKILL and not ended.is_set():
            raise RuntimeError(f"{what} has failed")


async def run_batch(file: str) -> None:
    """Run the batch of *file* to its end."""
    async with made() as client, _batch(client) as batch:
        async for _ in batch.run(file):
            pass


async def work_on_batch() -> None:
    """Work on the batch until it has ended."""
    async with made() as client, _batch(client) as batch:
        async for _ in batch.work():
            pass


def parts_of(rows: list[Row]) -> list[list[Row]]:
    """Divide *rows*, which are sorted, by their things."""
    parts: list[list[Row]] = [[] for _ in range(PARTS)]
    for row in rows:
        parts[crc32(row["thing"].encode()) % PARTS].append(row)
    return parts


ENGINES: dict[str, Callable[..., Engine]] = {
    "spark": Spark, "ray": Ray, "dask": Dask, "batch": BatchWorkers,
}  # fmt: skip


def main(name: str, how: str, folder: str) -> None:
    """Run the program of one engine."""
    os.chdir(folder)
    lines = Path("rows.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    with ExitStack() as stack:
        engine = ENGINES[name](stack, rows, keyed=how == "keyed")
        print("ready", flush=True)  # noqa: T201 - to the harness
        sys.stdin.readline()
        results = engine.send()
        told = "\n".join(json.dumps(result, default=str) for result in results)
        Path("results.jsonl").write_text(told, encoding="utf-8")
        print("done", flush=True)  # noqa: T201 - as above
        sys.stdin.readline()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["batch-run", _, file]:
            asyncio.run(run_batch(file))
        case ["batch-work", *_]:
            asyncio.run(work_on_batch())
        case [name, how, folder]:
            main(name, how, folder)
