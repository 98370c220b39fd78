"""
Start and stop the receiver with each worker of gunicorn.

``gunicorn -c examples/gunicorn_hooks.py --threads 4 examples.receive_flask:app``
"""

from __future__ import annotations

from examples.receive import receiver


def post_worker_init(_worker: object) -> None:
    """Begin with what was left in the store as soon as a worker starts, after the fork."""
    receiver.sync.start()


def worker_exit(_server: object, _worker: object) -> None:
    """Let running handlers end, also where a worker is told to stop."""
    receiver.sync.stop()
