"""Checks of what the specification leaves open in a deployment, with reads only."""

from __future__ import annotations

from invsvc_async.doctor.checkup import Checkup, Finding, examine
from invsvc_async.doctor.parameter_names import Named

__all__ = ["Checkup", "Finding", "Named", "examine"]
