"""What became of the rows of a table, in plain types."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from invsvc_async.reconcile.enums import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from invsvc_async.errors import InvalidRequestError
    from invsvc_async.reconcile.outcome import AnyOutcome

Plain: TypeAlias = str | bool | None
NAMES: Final = ("key", "verdict", "id", "message", "replayed", "secret")
_SECRETS: Final = {
    "lost": (
        "Its secret was lost with the answer: nobody has it. For a new one, delete the webhook and create it "
        "under another key."
    ),
    "not stored": "Its secret was given to the run that created it, and is not stored.",
    "delivered": "on_secret has had its secret.",
}


@attrs.frozen(kw_only=True)
class RowResult:
    """
    The result of one row.

    - ``key``: the key of its write.
    - ``verdict``: ``"applied"``, ``"not applied"``, ``"refused"``, ``"superseded"`` or ``"unknown"``. A row
      of which no valid write can be made, or whose key has another write, is ``"not applied"``.
    - ``id``: of what was written, if it is known.
    - ``message``: the reason of the verdict, and what became of a secret.
    - ``replayed``: whether an earlier run under this key had the verdict; nothing was sent now.
    - ``secret``: that of a new webhook, once, for the run that created it. ``None`` on a replay, if it was
      lost, or if ``on_secret`` of the client has had it; then ``message`` says which.
    """

    key: str
    verdict: str
    id: str | None = None
    message: str = ""
    replayed: bool = False
    secret: str | None = attrs.field(default=None, repr=False)

    @classmethod
    def of(cls, key: str, outcome: AnyOutcome, note: str = "") -> RowResult:
        """Return the result of a row with this *outcome*; its message begins with *note*."""
        about_secret = _SECRETS.get(outcome.secret or "", "")
        sentences = (note, _sentence(_why(outcome)), about_secret)
        is_new = outcome.secret == "returned"
        return cls(
            key=key,
            verdict=str(outcome.verdict),
            id=_id_of(outcome),
            message=" ".join(sentence for sentence in sentences if sentence),
            replayed=outcome.replayed,
            secret=getattr(outcome.value, "secret", None) if is_new else None,
        )

    @classmethod
    def invalid(cls, key: str, error: InvalidRequestError) -> RowResult:
        """Return the result of a row of which nothing was sent, because of *error*."""
        return cls(key=key, verdict=str(Verdict.NOT_APPLIED), message=str(error))

    def to_dict(self) -> dict[str, Plain]:
        """Return the fields by their names, with the secret."""
        return {name: getattr(self, name) for name in NAMES}


def columns_of(results: Iterable[RowResult]) -> dict[str, list[Plain]]:
    """Return *results* as columns."""
    rows = list(results)
    return {name: [getattr(row, name) for row in rows] for name in NAMES}


class Counts(Counter[str]):
    """How many rows have each verdict, and how many of them are replays."""

    def add(self, result: RowResult) -> None:
        """Count *result*."""
        self[result.verdict] += 1
        self["replayed"] += result.replayed

    @classmethod
    def sum(cls, parts: Iterable[Mapping[str, int]]) -> Counts:
        """Return the counts of all *parts* together."""
        counts = cls()
        for part in parts:
            counts.update(part)
        return counts

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(self[str(verdict)] for verdict in Verdict)

    def __str__(self) -> str:
        counted = [f"{self[each]:,} {each}" for each in map(str, Verdict) if self[each]]
        replayed = (
            f", {self['replayed']:,} of them replayed" if self["replayed"] else ""
        )
        return f"{self.rows:,} rows: {', '.join(counted) or 'none'}{replayed}"


def _why(outcome: AnyOutcome) -> str:
    """Return the reason of a verdict: of a refusal what the service said."""
    if outcome.verdict is Verdict.REFUSED and outcome.error is not None:
        return str(outcome.error)
    return outcome.message


def _sentence(text: str) -> str:
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def _id_of(outcome: AnyOutcome) -> str | None:
    """Return the id of what was written, or of what was to be."""
    value: Any = outcome.value  # Any: the operation says what it is
    found = value.get("id") if isinstance(value, dict) else getattr(value, "id", None)
    if not isinstance(found, str):
        found = next(iter(outcome.started_as.path.values()), None)
    return found if isinstance(found, str) else None
