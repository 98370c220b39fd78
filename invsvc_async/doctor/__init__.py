"""
Ask a deployment what the specification leaves open, with reads only; never write to it.
"""

from __future__ import annotations

from invsvc_async.doctor.checkup import Checkup, Finding, examine
from invsvc_async.doctor.parameter_names import Named

__all__ = ["Checkup", "Finding", "Named", "examine"]
