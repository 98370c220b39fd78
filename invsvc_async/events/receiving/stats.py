"""What a receiver counts of its own work, since it was created."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Final, Literal

import attrs

from invsvc_async.events.credentials import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from invsvc_async.events.credentials import Credential
    from invsvc_async.events.receiving.admission import Trust
    from invsvc_async.events.receiving.receipt import Receipt

__all__ = ["CredentialStats", "ReceiverStats", "Tally"]


@attrs.frozen(kw_only=True)
class CredentialStats:
    """
    How often a secret or shared header authenticated a delivery, and when last (seconds since the epoch).

    ``label`` is the one given, or its position, from 1.  ``refused`` counts deliveries that came with it
    after ``retires_at``.
    """

    kind: Literal["secret", "shared header"]
    label: str
    matched: int
    last_matched_at: float | None
    refused: int
    retires_at: datetime | None


@attrs.frozen(kw_only=True)
class ReceiverStats:
    """
    What a receiver has done since it was created, in this process.

    ``answers`` counts by HTTP status and outcome.  ``credentials`` lists what authenticates deliveries.
    """

    answers: Mapping[tuple[int, str], int]
    credentials: tuple[CredentialStats, ...]


@attrs.define
class _Use:
    matched: int = 0
    last: float | None = None
    refused: int = 0


class Tally:
    """The counters of one receiver; *clock* returns seconds since the epoch."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock: Final = clock
        self._answers: Counter[tuple[int, str]] = Counter()
        self._uses: dict[Credential, _Use] = {}

    def answered(self, receipt: Receipt) -> None:
        """Count an answer."""
        self._answers[receipt.status, receipt.outcome] += 1

    def matched(self, credential: Credential) -> None:
        """Count a delivery that *credential* authenticates."""
        use = self._uses.setdefault(credential, _Use())
        use.matched += 1
        use.last = self.clock()

    def refused(self, credential: Credential) -> bool:
        """Count a delivery that came with a retired *credential*; return whether it was the first."""
        use = self._uses.setdefault(credential, _Use())
        use.refused += 1
        return use.refused == 1

    def stats(self, trust: Trust | None) -> ReceiverStats:
        """Return the counts; only of the secrets and headers that are in *trust*."""
        credentials: list[CredentialStats] = []
        groups: tuple[tuple[Credential, ...], ...] = (trust.keys, trust.shared_headers) if trust else ()
        for group in groups:
            for number, credential in enumerate(group, 1):
                use = self._uses.get(credential, _Use())
                credentials.append(
                    CredentialStats(
                        kind="secret" if isinstance(credential, Secret) else "shared header",
                        label=credential.label or str(number),
                        matched=use.matched,
                        last_matched_at=use.last,
                        refused=use.refused,
                        retires_at=credential.retires_at,
                    )
                )
        return ReceiverStats(answers=dict(self._answers), credentials=tuple(credentials))
