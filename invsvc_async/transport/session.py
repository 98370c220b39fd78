"""The reports of hooks, which version 0.1.0 documented here. They are in ``client_core`` now."""

from invsvc_async.transport.client_core import AttemptReport, DecisionReport

__all__ = ["AttemptReport", "DecisionReport"]
