"""
The service of the specification in memory, on a real socket: run clients against it, with faults.

Must never import the client, so that it cannot share the client's mistakes.
"""

from __future__ import annotations

from invsvc_async.simulator.faults import Faults
from invsvc_async.simulator.json_records import Record
from invsvc_async.simulator.ledger import Entry, Ledger
from invsvc_async.simulator.routes import routes
from invsvc_async.simulator.service import Simulator

__all__ = ["Entry", "Faults", "Ledger", "Record", "Simulator", "routes"]
