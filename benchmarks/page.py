"""Write the table for the docs, from what was measured.  The page draws its chart from the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.harness import Row

__all__ = ["table", "write_page"]


def write_page(rows: Sequence[Row], about: Mapping[str, str], folder: Path) -> None:
    """Write ``bench.md`` into *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.md").write_text(table(rows, about), encoding="utf-8")


def table(rows: Sequence[Row], about: Mapping[str, str]) -> str:
    """Return the table as Markdown."""
    lines = ["| What | Against | Ratio | 95 % interval | Target | |", "|---|---|---|---|---|---|"]
    for row in rows:
        sign = "≤" if row.sense == "most" else "≥"
        ratio = f"{row.ratio.median:.2f}" if row.ratio else "none"
        interval = f"{row.ratio.low:.2f} to {row.ratio.high:.2f}" if row.ratio else row.note
        lines.append(
            f"| {row.what} | {row.against} | {ratio} | {interval} | {sign} {row.limit:g} | {row.verdict} |"
        )
    words = ", ".join(f"{name} {what}" for name, what in about.items())
    return "\n".join([*lines, "", f"Measured with {words}.", ""])
