"""
A simulator of the service, on a real socket and with fault injection.

It imports nothing of the client, so that it cannot share the client's mistakes.
"""

from __future__ import annotations

from invsvc_async.simulator.faults import Faults
from invsvc_async.simulator.json_records import Record
from invsvc_async.simulator.ledger import Entry, Ledger
from invsvc_async.simulator.operations import routes
from invsvc_async.simulator.service import Simulator
from invsvc_async.simulator.stores import Stores

__all__ = ["Entry", "Faults", "Ledger", "Record", "Simulator", "Stores", "routes"]
