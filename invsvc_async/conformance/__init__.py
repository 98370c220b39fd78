"""
Judge of any client, in any language, by what the embedded service did under faults.

The command under test gets these environment variables:

========================  =====================================================================
``INVSVC_BASE_URL``       the embedded service, on this machine
``INVSVC_API_KEY``        a bearer token for it
``INVSVC_WRITES``         a file of writes, one JSON object per line (below)
``INVSVC_CONCURRENCY``    the requested number of writes in flight
``INVSVC_SETTLE``         seconds after a request's end in which the service may still commit it
========================  =====================================================================

A line of the file is ``{"key": …, "after": …, "operation": …, "method": …, "path": …, "query": {…},
"headers": {…}, "body": {…}}``; ``after`` and ``body`` may be null.  Each write must be sent unchanged.

``after`` is the key of the previous write of a sequence, whose line comes earlier in the file.  The write
must be sent after that one has been reported; all other order is free.  ``headers`` identify the write in
the ledger.  A client that cannot send headers with a single write leaves them out.

For each write the command prints one line, ``{"key": …, "verdict": …, "reason": …, "id": …}``.  The verdict
is what the client *believes*: ``applied``, ``not_applied``, ``refused``, ``superseded`` or ``unknown``.
``id`` is the webhook that a create made; it is optional.  Lines that are not JSON objects are ignored.
"""

from __future__ import annotations

from invsvc_async.conformance.run import Conformance, conform

__all__ = ["Conformance", "conform"]
