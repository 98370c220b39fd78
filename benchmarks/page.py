"""Write the table for the docs, from what was measured.  The page draws its chart from the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.harness import Row

__all__ = ["table", "write_page"]


def write_page(
    rows: Sequence[Row],
    about: Mapping[str, str],
    folder: Path,
    *,
    before: Sequence[Row] = (),
) -> None:
    """Write ``bench.md`` into *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.md").write_text(table(rows, about, before), encoding="utf-8")


def table(
    rows: Sequence[Row], about: Mapping[str, str], before: Sequence[Row] = ()
) -> str:
    """Return the table as Markdown, with a column for the ratios *before*, if there are any."""
    earlier = {
        (row.what, row.against): f"{row.ratio.median:.2f} | "
        for row in before
        if row.ratio
    }
    head = "Before | " if earlier else ""
    lines = [
        f"| What | Against | {head}Ratio | 95 % interval | Target | |",
        f"|---|---|---|---|---|---|{'---|' if earlier else ''}",
    ]
    for row in rows:
        known = earlier.get((row.what, row.against), "none | ") if earlier else ""
        target = f"{'≤' if row.sense == 'most' else '≥'} {row.limit:g}"
        ratio = f"{row.ratio.median:.2f}" if row.ratio else "none"
        interval = (
            f"{row.ratio.low:.2f} to {row.ratio.high:.2f}" if row.ratio else row.note
        )
        lines.append(
            f"| {row.what} | {row.against} | {known}{ratio} | {interval} | {target} | {row.verdict} |"
        )
    words = ", ".join(f"{name} {what}" for name, what in about.items())
    return "\n".join([*lines, "", f"Measured with {words}.", ""])
