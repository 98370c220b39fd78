"""A Spark of two hosts on this machine: to Spark they are two, so it runs a slow task on the other one, too."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATIENCE = 300.0  # s


@contextmanager
def spark_on_two_hosts() -> Iterator[str]:
    """Start a master and two workers of one task each, and yield the address of the master."""
    import pyspark

    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    port = _free_port()
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack:
        _start(
            stack,
            program,
            f"{deploy}.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--webui-port",
            "0",
        )
        _wait_for(port)
        for host in ("127.0.0.2", "127.0.0.3"):
            _start(
                stack, program, f"{deploy}.worker.Worker", "--host", host, "--cores", "1", "--memory", "1g",
                "--webui-port", "0", "--work-dir", str(Path.cwd() / host), master,
            )  # fmt: skip
        yield master


def _start(stack: ExitStack, *command: object) -> None:
    child = subprocess.Popen([*map(str, command)], env=os.environ)  # noqa: S603 - Spark itself
    stack.callback(child.wait)
    stack.callback(child.kill)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait_for(port: int) -> None:
    """Wait until the master answers."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)  # sleeps: it is another program
    raise TimeoutError("the master of Spark has not started")
