"""
The completion time of a write, from which pruning a store tells the age of the write.

A database has a clock of its own; a file has none.  Both it and the wall clock of a process may be days off,
and may be set right later.  So the time in a file is kept within the bounds that the service's answers set,
and that of a database counts unless it is below them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.transport.client_core import ClientCore


SLACK: Final = 1.0  # s by which the clocks of the service's hosts may disagree


def done_at(core: ClientCore, store: Store) -> int:
    """
    Return the time of a write that ends now, as it is given to *store*, in epoch ms.

    For a file that is the time of this machine, within the bounds of the service's clock.  A database stores
    its own time, or the one that is given if that is later: the earliest that the service's clock allows, or
    0 if that clock is not known.
    """
    here = core.clock.now()
    bounds = core.server_clock.bounds(here, SLACK)
    if store.is_shared:
        now = 0.0 if bounds is None else here + bounds.low
    else:
        now = time.time()
        if bounds is not None:
            now = min(max(now, here + bounds.low), here + bounds.high)
    return int(now * 1000)
