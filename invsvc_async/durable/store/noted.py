"""
What users note of their writes, as a store shows it and looks for it.

``NOTED`` has a row for each field of ``Noted``, a column of the entries of the same name.  Lists, their
conditions and what people see are made of these rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import attrs

from invsvc_async.durable.store.migrations import WITH_LABELS
from invsvc_async.writes.labels import NO_LABELS, in_words, labels_in, pair
from invsvc_async.writes.noted import NOTED_NAMES, Noted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from invsvc_async.codec.exact_json import Wire, WireObject


@attrs.frozen(kw_only=True)
class Chosen:
    """
    Which writes a list shows: those for which all of this holds.

    ``state`` is ``"open"``, ``"untold"``, or the name of a verdict; ``None``: any.  The write has all of
    ``labels``.
    """

    state: str | None = None
    labels: Mapping[str, str] = NO_LABELS

    @property
    def includes_open(self) -> bool:
        """Whether open writes may be among them."""
        return self.state in (None, "open")


ALL: Final = Chosen()


@attrs.frozen(kw_only=True)
class NotedColumn:
    """
    A column of the entries, and how what is noted there is shown and looked for.

    - ``name``: of the column, and of the field of ``Noted``.
    - ``since``: the first version of the tables that has the column.
    - ``wanted``: the texts for which a choice looks in the column; empty: for none.
    - ``condition``: that the entry *e* has the text ``{given}`` there.
    - ``has``: the same of a stored value, for writes that the store does not have yet.
    - ``shown``: what lists have of a stored value, for JSON; nothing if it is empty or ``None``.
    - ``in_words``: that for people.
    """

    name: str
    since: int
    wanted: Callable[[Chosen], list[str]]
    condition: str
    has: Callable[[str | None, str], bool]
    shown: Callable[[str | None], Wire]
    in_words: Callable[[Wire], str]

    def selected_from(self, version: int) -> str:
        """Return the column of the entry *e* in tables of a *version*: NULL if they lack it."""
        if version < self.since:
            return "NULL"
        return f"e.{self.name}"


def _wanted_labels(chosen: Chosen) -> list[str]:
    """Return each label as one text in the stored form."""
    return [pair(*label) for label in chosen.labels.items()]


def _is_part(stored: str | None, text: str) -> bool:
    """Return whether *text* is one of the *stored* labels."""
    return stored is not None and text in stored


NOTED: Final = (
    # The functions for JSON cannot be relied on: SQLite may be built without, and PostgreSQL refuses some
    # texts.
    NotedColumn(
        name="labels",
        since=WITH_LABELS,
        wanted=_wanted_labels,
        condition="{at}(e.labels, {given}) > 0",
        has=_is_part,
        shown=labels_in,
        in_words=in_words,
    ),
)


class Wanted(NamedTuple):
    """A *text* that a column has to have."""

    column: NotedColumn
    text: str

    def condition(self, number: int) -> str:
        """Return the condition that the entry *e* has the text, which is the value *number*."""
        return self.column.condition.replace("{given}", f"{{arg {number} text}}")


def wanted_by(chosen: Chosen) -> list[Wanted]:
    """Return what *chosen* wants to be noted of an entry."""
    return [Wanted(column, text) for column in NOTED for text in column.wanted(chosen)]


def has_all(noted: Noted, wanted: Sequence[Wanted]) -> bool:
    """Return whether all that is *wanted* is *noted*."""
    return all(
        each.column.has(getattr(noted, each.column.name), each.text) for each in wanted
    )


def columns_in(version: int) -> str:
    """Return the columns of the entry *e* to select from tables of a *version*, for ``noted_in``."""
    return ", ".join(column.selected_from(version) for column in NOTED)


def noted_in(cells: Iterable[str | None]) -> Noted:
    """Return what is noted in *cells*, which ``columns_in`` has selected."""
    return Noted(**dict(zip(NOTED_NAMES, cells, strict=True)))


def shown_of(noted: Noted) -> WireObject:
    """Return what lists have of *noted*, as members of a JSON object."""
    row: WireObject = {}
    for column in NOTED:
        value = column.shown(getattr(noted, column.name))
        if value:
            row[column.name] = value
    return row


def words_of(row: WireObject) -> dict[str, str]:
    """Return in words what ``shown_of`` has added to *row*."""
    words: dict[str, str] = {}
    for column in NOTED:
        if column.name in row:
            words[column.name] = column.in_words(row[column.name])
    return words
