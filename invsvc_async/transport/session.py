"""The reports of hooks, which version 0.1.0 documented in this place. They are in ``client_core``."""

from invsvc_async.transport.client_core import AttemptReport, DecisionReport

__all__ = ["AttemptReport", "DecisionReport"]
