"""The settings with which the writes of a batch or outbox are sent."""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING

import attrs

from invsvc_async.errors import ConfigurationError
from invsvc_async.settings import check_count, check_on_secret

if TYPE_CHECKING:
    from invsvc_async.batch.restored import Restored
    from invsvc_async.client import Client
    from invsvc_async.settings import OnSecret, ReconcilePolicy

__all__ = ["Sending", "waiting"]


@attrs.define(kw_only=True, eq=False)
class Sending:
    """
    The settings of ``Batch.open``, and what is known of the journal once it is open.

    ``epoch`` is its identity, from which tags are made; ``restored`` are its doubts, if it was restored from
    a copy.
    """

    client: Client
    concurrency: int
    rate: float | None
    tag: bool = True
    on_secret: OnSecret | None = None
    same_mode: bool = False
    stop_after: float | None = None
    epoch: str = ""
    restored: Restored | None = None

    def __attrs_post_init__(self) -> None:
        check_count("concurrency", self.concurrency, least=1)
        rate = self.rate
        if rate is not None and not (isinstance(rate, (int, float)) and 0 < rate < inf):
            raise ConfigurationError(f"rate: must be a number of sends per second above 0, not {rate!r}")
        check_on_secret(self.on_secret)


@lru_cache(1000)  # one object for each, so that it is packed once
def waiting(policy: ReconcilePolicy) -> ReconcilePolicy:
    """Return *policy* with ``wait_when_limited=True``."""
    return attrs.evolve(policy, wait_when_limited=True)
