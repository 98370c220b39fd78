"""Writes that are cut off."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.support.waiting import cancel

if TYPE_CHECKING:
    from invsvc_async import Write
    from invsvc_async.simulator import Simulator

__all__ = ["cut_off"]


async def cut_off(service: Simulator, write: Write[Any]) -> None:
    """Await *write*, and cancel that once its request has arrived."""
    operation = write._spec.operation.name
    number, running = service.arrivals(operation) + 1, asyncio.create_task(write.outcome())
    await service.arrived(operation, number)
    await cancel(running)
