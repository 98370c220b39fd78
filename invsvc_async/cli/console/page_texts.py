"""Texts for the page, which sets them as text: control characters are visible, and nothing is markup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.cli.visible_text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from invsvc_async.cli.store_views import TableView
    from invsvc_async.codec.exact_json import WireObject


def visible_texts(texts: Iterable[str]) -> list[str]:
    """Return *texts* with control characters and changes of direction as escape sequences."""
    return [visible(text) for text in texts]


def plain_facts(facts: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Return names with their texts, as JSON values, without those whose text is empty."""
    return [visible_texts((name, words)) for name, words in facts if words]


def plain_table(table: TableView) -> WireObject:
    """Return a table as JSON values, without the columns that are empty."""
    columns = [
        column for column in range(len(table.titles)) if _is_shown(table, column)
    ]
    return {
        "titles": [table.titles[column] for column in columns],
        "rows": [
            visible_texts(row[column] for column in columns) for row in table.rows
        ],
        "right": [
            place for place, column in enumerate(columns) if column in table.right
        ],
    }


def _is_shown(table: TableView, column: int) -> bool:
    """Return whether a row has a text in *column*; without rows, all columns are shown."""
    if not table.rows:
        return True
    return any(row[column] for row in table.rows)
