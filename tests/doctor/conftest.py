"""The event loop of the tests of the checkup."""

import asyncio

from tests.support.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories(config, item):
    """Run what is marked in virtual time; the others have no short deadlines."""
    marked = item.get_closest_marker("loop_time")
    return {"asyncio": VirtualTimeLoop if marked else asyncio.new_event_loop}
