"""
Judge any client, in any language, by what the service truly did under faults; never look inside the client.

The command under test gets, in its environment:

========================  =====================================================================
``INVSVC_BASE_URL``       the embedded service, on this machine
``INVSVC_API_KEY``        a bearer token for it
``INVSVC_WRITES``         a file of writes, one JSON object a line (below)
``INVSVC_CONCURRENCY``    how many it is asked to have under way at once
``INVSVC_SETTLE``         seconds after a request's end in which the service may still commit it
========================  =====================================================================

A line of the file is ``{"key": …, "operation": …, "method": …, "path": …, "query": {…}, "body": {…}}``, where
``body`` may be null.  Each is to be sent as it stands, in any order; no two touch the same thing.  For each
the command prints one line, ``{"key": …, "verdict": …, "reason": …}``, with the verdict ``applied``,
``not_applied``, ``refused``, ``superseded`` or ``unknown``: what it *believes* happened.  Lines that are no
JSON object are passed over.
"""

from __future__ import annotations

from invsvc_async.conformance.run import Conformance, conform

__all__ = ["Conformance", "conform"]
