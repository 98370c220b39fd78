"""Picture of what `decide` does, made by calling it."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from invsvc_async.api.operations import BY_NAME
from invsvc_async.reconcile.decide import decide
from invsvc_async.reconcile.facts import Known
from invsvc_async.reconcile.history import (
    Absent,
    Applied,
    Attempt,
    Bounds,
    CannotTell,
    Decision,
    Done,
    End,
    ErrorFacts,
    History,
    Holds,
    Read,
    Reading,
    Send,
    Superseded,
    Tick,
    Wait,
)
from invsvc_async.reconcile.intent import Intent, Scope
from invsvc_async.settings import ReconcilePolicy

POLICY = ReconcilePolicy()
ASKED = Intent(
    key="k", operation="client.write", path={"method": "PUT", "path": "/things/1"}, reader="found",
    scope=Scope(base_url="b"), bounds=Bounds(low=0.0, high=0.0), policy=POLICY,
)  # fmt: skip


class Row(NamedTuple):
    """An event and the decision: at once or, for a read, after the settle window."""

    seen: str
    first: str
    later: str = ""


def _attempt(
    end: End = End.ANSWERED,
    status: int | None = None,
    *,
    own: bool = True,
    readable: bool = False,
) -> Attempt:
    error = (
        None if readable else ErrorFacts(kind="ServiceError", message="", status=status)
    )
    return Attempt(
        started=0.0,
        ended=0.1,
        end=end,
        status=status,
        own_envelope=own,
        readable=readable,
        value={},
        error=error,
    )


ENDS = (
    ("a 2xx that can be read", _attempt(status=200, readable=True)),
    ("a 4xx of the service, but 408", _attempt(status=400)),
    ("not one byte was sent", _attempt(End.NOT_SENT)),
    ("500, in the service's own envelope", _attempt(status=500)),
    ("502 to 504, 408; a 4xx, 5xx of a proxy", _attempt(status=403, own=False)),
    ("202; a 2xx that cannot be read", _attempt(status=202, readable=True)),
    ("lost, truncated, timed out, cancelled", _attempt(End.LOST)),
)
FINDINGS = (
    ("it is there", Applied({})),
    ("it matches, perhaps not due to us", Holds({})),
    ("it is not there", Absent()),
    ("somebody else changed it", Superseded("")),
    ("this read cannot tell", CannotTell("")),
    ("the read failed", None),
)


def _text_of(decision: Decision) -> str:
    match decision:
        case Done(verdict=verdict):
            return verdict.name
        case Send(not_after=None):
            return "send it"
        case Send():
            return "send again, on this proof"
        case Read():
            return "read again"
        case Wait():
            return "wait"


def _decided(history: History) -> Decision:
    return decide(Known(BY_NAME[ASKED.operation], ASKED, history))


def _next(*history: Attempt | Reading) -> str:
    """Return the decision; after a wait, also the one that follows."""
    decision = _decided(history)
    if not isinstance(decision, Wait):
        return _text_of(decision)
    then = _decided((*history, Tick(history[-1].ended + decision.seconds)))
    return f"wait, then {_text_of(then)}"


def ends() -> list[Row]:
    """Return the decision after each end of the first attempt."""
    rows = []
    for words, attempt in ENDS:
        decision = _decided((attempt,))
        doubt = isinstance(decision, Read)
        rows.append(
            Row(
                words,
                f"in doubt for {_window(attempt):g} s" if doubt else _next(attempt),
            )
        )
    return rows


def _window(attempt: Attempt) -> float:
    """Return when a read without the write begins to count."""
    for seconds in (
        POLICY.settle_after_error,
        POLICY.reads_lag,
        POLICY.settle_after_loss,
    ):
        reading = _reading(attempt.ended + seconds + 0.001, Absent())
        if isinstance(_decided((attempt, reading)), (Send, Done)):
            return seconds
    raise AssertionError("no window ends")


def _reading(at: float, finding: object) -> Reading:
    status = None if finding is None else 200
    return Reading(
        started=at,
        ended=at + 0.1,
        status=status,
        own_envelope=status == 200,
        finding=finding,
    )  # type: ignore[arg-type]


def findings() -> list[Row]:
    """Return the decisions after each finding, within the window and after it."""
    lost, rows = _attempt(End.LOST), []
    for words, finding in FINDINGS:
        after = lost.ended + POLICY.settle_after_loss + 0.001
        rows.append(
            Row(words, *(_next(lost, _reading(at, finding)) for at in (0.2, after)))
        )
    return rows


COLOURS = {
    "APPLIED": "#bfe3c6",
    "REFUSED": "#f9d5a7",
    "NOT_APPLIED": "#f0e3b8",
    "SUPERSEDED": "#d9d2ea",
    "UNKNOWN": "#f3c9c2",
}
PLAIN, DOUBT = "#e6ebf2", "#fbe9a9"
LINE, TOP, WIDE, NARROW, GAP = 34, 56, 270, 190, 46


def _box(x: int, y: int, width: int, words: str) -> str:
    fill = COLOURS.get(words, DOUBT if words.startswith("in doubt") else PLAIN)
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="26" rx="5" fill="{fill}" stroke="#8893a5"/>'
        f'<text x="{x + width // 2}" y="{y + 17}" text-anchor="middle" fill="#1b2330">{escape(words)}</text>'
    )


def _arrow(x: int, y: int, width: int) -> str:
    line = f"M{x} {y + 13} h{width - 6}"
    return (
        f'<path d="{line}" stroke="#8893a5" stroke-width="1.5" marker-end="url(#tip)"/>'
    )


def _panel(
    y: int, title: str, heads: tuple[str, ...], rows: list[Row]
) -> tuple[str, int]:
    second = 10 + WIDE + GAP
    third = second + NARROW + 14
    parts = [
        f'<text x="10" y="{y + 18}" font-weight="bold" fill="currentColor">{escape(title)}</text>'
    ]
    for x, head in zip((second, third), heads, strict=False):
        at = f'x="{x + NARROW // 2}" y="{y + 44}" text-anchor="middle"'
        parts.append(f'<text {at} fill="currentColor">{escape(head)}</text>')
    y += TOP
    for row in rows:
        parts += [
            _box(10, y, WIDE, row.seen),
            _arrow(10 + WIDE, y, GAP),
            _box(second, y, NARROW, row.first),
        ]
        parts += [_box(third, y, NARROW, row.later)] if row.later else []
        y += LINE
    return "".join(parts), y


def draw() -> str:
    """Return the picture as SVG."""
    upper, y = _panel(0, "1  How an attempt ended", ("what follows",), ends())
    lower, y = _panel(
        y + 12,
        "2  In doubt: what a read of the state shows",
        ("while the window is open", "begun after the window"),
        findings(),
    )
    width = 10 + WIDE + GAP + 2 * NARROW + 24
    size = f'viewBox="0 0 {width} {y + 6}" font-family="sans-serif" font-size="13"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>'
        "<title>What is decided about a write</title>"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#8893a5"/></marker></defs>'
        f"{upper}{lower}</svg>"
    )
