"""What became of the rows of a table, in plain types."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from invsvc_async.errors import InvsvcError, RateLimitedError
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.resources.lost_secrets import may_be_kept
from invsvc_async.web import has_newer_write

if TYPE_CHECKING:
    from collections.abc import Iterable

    from invsvc_async.errors import InvalidRequestError
    from invsvc_async.reconcile.outcome import AnyOutcome

Plain: TypeAlias = str | bool | None
# What a sink does if rows were not applied, because it has no results to return.
Incomplete: TypeAlias = Literal["raise", "log"]
log: logging.Logger = logging.getLogger("invsvc_async.engines")
# The columns of results, which are fields of a RowResult, and their types. A text may be missing.
COLUMNS: Final[dict[str, type[str | bool]]] = {
    "key": str,
    "verdict": str,
    "id": str,
    "message": str,
    "replayed": bool,
    "secret": str,
}
_SECRETS: Final = {
    "lost": (
        "Its secret was lost with the answer: nobody has it. For one with a secret, replace the webhook: "
        "invsvc journal replace-lost."
    ),
    "not stored": "Its secret was given to the run that created it, and is not stored.",
    "delivered": "on_secret has had its secret.",
}
_MAY_BE_KEPT: Final = (
    "Its secret was not noted as kept: a process was killed, or closed its client, after it had sent the "
    "create. on_secret may have had the secret: look there first. Otherwise replace the webhook: invsvc "
    "journal replace-lost."
)
_OPEN: Final = (Verdict.UNKNOWN, Verdict.NOT_APPLIED)


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
    # whether sending the row again may apply it; it is no column of results
    runs_again: bool = attrs.field(
        default=False,
        repr=False,
        eq=False,
    )

    @classmethod
    def of(
        cls,
        key: str,
        outcome: AnyOutcome,
        note: str = "",
    ) -> RowResult:
        """Return the result of a row with this *outcome*; its message begins with *note*."""
        about_secret = _SECRETS.get(outcome.secret or "", "")
        if outcome.secret_lost and may_be_kept(outcome):
            about_secret = _MAY_BE_KEPT
        sentences = (note, _sentence(_why(outcome)), about_secret)
        is_new = outcome.secret == "returned"
        return cls(
            key=key,
            verdict=str(outcome.verdict),
            id=_id_of(outcome),
            message=" ".join(filter(None, sentences)),
            replayed=outcome.replayed,
            secret=getattr(outcome.value, "secret", None) if is_new else None,
            runs_again=_may_run_again(outcome),
        )

    @classmethod
    def invalid(cls, key: str, error: InvalidRequestError) -> RowResult:
        """Return the result of a row of which nothing was sent, because of *error*."""
        return cls(
            key=key,
            verdict=str(Verdict.NOT_APPLIED),
            message=str(error),
        )

    def to_dict(self) -> dict[str, Plain]:
        """Return the fields by their names, with the secret."""
        return {name: getattr(self, name) for name in COLUMNS}


def columns_of(results: Iterable[RowResult]) -> dict[str, list[Plain]]:
    """Return *results* as columns."""
    rows = list(results)
    return {name: [getattr(row, name) for row in rows] for name in COLUMNS}


class Counts(Counter[str]):
    """How many rows have each verdict, are replays, or may be applied if sent ``again``."""

    def add(self, result: RowResult) -> None:
        """Count *result*."""
        self[result.verdict] += 1
        self["replayed"] += result.replayed
        self["again"] += result.runs_again

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(self[str(verdict)] for verdict in Verdict)

    def __str__(self) -> str:
        counted = [f"{self[each]:,} {each}" for each in map(str, Verdict) if self[each]]
        if self["replayed"]:
            replayed = f", {self['replayed']:,} of them replayed"
        else:
            replayed = ""
        return f"{self.rows:,} rows: {', '.join(counted) or 'none'}{replayed}"


@attrs.frozen
class PartCounts:
    """What a part of a table tells the program that divided it: the counts, and the first row not applied."""

    counts: Counts
    first: str | None

    @classmethod
    def of(cls, results: Iterable[RowResult]) -> PartCounts:
        """Count *results*."""
        counts = Counts()
        first: str | None = None
        for result in results:
            counts.add(result)
            if first is None and result.verdict != str(Verdict.APPLIED):
                first = f"{result.key}: {result.verdict}: {result.message}"
        return cls(counts, first)

    @classmethod
    def sum(cls, parts: Iterable[PartCounts]) -> PartCounts:
        """Return what all *parts* tell together."""
        counts = Counts()
        first: str | None = None
        for part in parts:
            counts.update(part.counts)
            if first is None:
                first = part.first
        return cls(counts, first)

    def conclude(self, incomplete: Incomplete) -> None:
        """
        Log the counts.

        Raises:
            IncompleteError: Rows were not applied, and *incomplete* is not ``"log"``.
        """
        log.info("%s", self.counts)
        if self.first is None:
            return
        said = f"{self.counts}. The first that was not applied is {self.first}"
        if incomplete == "log":
            log.warning("%s", said)
            return
        raise IncompleteError(
            f"rows: not all were applied: {said} Write the table again: rows that were applied replay."
        )


class IncompleteError(InvsvcError):
    """Not all rows of a table were applied. The message has the counts, and the first such row."""


def _may_run_again(outcome: AnyOutcome) -> bool:
    """Return whether sending the row again may apply it."""
    if has_newer_write(outcome):
        return False
    if outcome.verdict in _OPEN:
        return True
    return isinstance(outcome.error, RateLimitedError)


def _why(outcome: AnyOutcome) -> str:
    """Return the reason of a verdict: of a refusal what the service said."""
    if outcome.verdict is Verdict.REFUSED and outcome.error is not None:
        return str(outcome.error)
    return outcome.message


def _sentence(text: str) -> str:
    """Return *text* with a full stop at its end."""
    if not text or text.endswith((".", "!", "?")):
        return text
    return f"{text}."


def _id_of(outcome: AnyOutcome) -> str | None:
    """Return the id of what was written, or of what was to be."""
    value: Any = outcome.value  # Any: the operation says what it is
    known = value.get("id") if isinstance(value, dict) else getattr(value, "id", None)
    if isinstance(known, str):
        return known
    in_path = next(iter(outcome.started_as.path.values()), None)
    if isinstance(in_path, str):
        return in_path
    return None
