"""
The completion time of a write that is stored in a file.

A database has a clock of its own; a file has none.  The wall clock of a process may be days off, and what
another process prunes is chosen by age.  So the time is this machine's only within the bounds that the
service's answers set.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from invsvc_async.transport.client_core import ClientCore


SLACK: Final = 1.0  # s by which the clocks of the service's hosts may disagree


def epoch_ms(core: ClientCore) -> int:
    """Return the time now, in epoch ms: that of this machine, within the bounds of the service's clock."""
    now = time.time()
    here = core.clock.now()
    bounds = core.server_clock.bounds(here, SLACK)
    if bounds is not None:
        now = min(max(now, here + bounds.low), here + bounds.high)
    return int(now * 1000)
