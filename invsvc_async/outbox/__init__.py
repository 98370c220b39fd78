"""The transactional outbox: writes that a transaction of the application commits, and that are then sent."""

from __future__ import annotations

from invsvc_async.outbox.outbox import Outbox

__all__ = ["Outbox"]
