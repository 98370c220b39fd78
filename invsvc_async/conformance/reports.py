"""The reports of a client about its writes, and requested writes in the form of the ledger."""

from __future__ import annotations

from decimal import Decimal
from math import inf
from typing import TYPE_CHECKING
from urllib.parse import quote

import attrs

from invsvc_async.codec import envelope
from invsvc_async.simulator.json_records import is_array, is_object

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.conformance.reasons import Told
    from invsvc_async.reconcile.history import Verdict
    from invsvc_async.reconcile.intent import Intent


@attrs.frozen
class RequestedWrite:
    """A requested write as in the ledger: ``team`` is where it acts, ``path_id`` names the changed thing."""

    operation: str
    path_id: str | None
    team: str | None
    body: str  # canonical JSON

    @classmethod
    def of(cls, intent: Intent, *, home: str) -> RequestedWrite:
        """Return what *intent* requests; *home* is the team of the credential."""
        path_id = next(reversed(intent.path.values()), None)
        body = intent.body if intent.has_body else None
        return cls(
            intent.operation, path_id, intent.scope.team or home, canonical(body)
        )

    @property
    def thing(self) -> tuple[str, str] | None:
        """Resource and id of what it changes; ``None`` for a create."""
        if self.path_id is None:
            return None
        return self.operation.partition(".")[0], self.path_id


@attrs.frozen
class Conclusion:
    """
    What a client believes: a verdict, the reason, the id of what a create made, and perhaps the story.

    ``told`` is the reason as codes, which are judged as well; a client need not give them.
    """

    verdict: Verdict
    reason: str = ""
    made: str | None = None
    story: str = ""
    told: Told | None = None


@attrs.frozen(kw_only=True)
class WriteReport(Conclusion):
    """
    What a client reports about one write.

    ``began`` and ``ended`` bound the write in seconds of the ledger's clock; by default the whole run counts.
    """

    key: str
    asked: RequestedWrite
    began: float = -inf
    ended: float = inf


def sender_of(key: str) -> str:
    """Return the value of the header ``X-Write-Id`` for the write *key*."""
    return quote(key, safe="")


def canonical(body: Wire) -> str:
    """Format *body* so that equal bodies are equal texts: key order does not matter, and 1 is 1.0."""
    return envelope.dumps(_plain(body)).decode()


def _plain(value: Wire) -> Wire:
    if is_object(value):
        return {name: _plain(value[name]) for name in sorted(value)}
    if is_array(value):
        return [_plain(each) for each in value]
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return Decimal(str(value)).normalize()
    return value
