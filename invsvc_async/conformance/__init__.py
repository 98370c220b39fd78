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

A line of the file is ``{"key": …, "after": …, "operation": …, "method": …, "path": …, "query": {…},
"headers": {…}, "body": {…}}``; ``after`` and ``body`` may be null.  Each is to be sent as it stands.

``after`` is the key of the write before it in a sequence, whose line comes earlier in the file: the write is
sent only once that one has been reported.  All other order is free.  ``headers`` name the write to the
ledger; a client that cannot send headers with a single write leaves them out.

For each write the command prints one line, ``{"key": …, "verdict": …, "reason": …, "id": …}``, with the
verdict ``applied``, ``not_applied``, ``refused``, ``superseded`` or ``unknown``: what it *believes* happened.
``id`` is that of the webhook that a create made, and may be left out.  Lines that are not JSON objects are
skipped.
"""

from __future__ import annotations

from invsvc_async.conformance.run import Conformance, conform

__all__ = ["Conformance", "conform"]
