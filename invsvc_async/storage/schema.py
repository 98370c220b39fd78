"""
The versions of tables, and the statements that bring tables of an earlier version up to date.

A store notes the version of its tables.  Whoever opens it to work brings an earlier version up to date, in
one transaction, under a lock that others who open it wait for.  What only reads leaves the tables as they
are.  A version that the package does not know is refused.

A released migration is never changed, since the tables that it made are there: a further change of the tables
is a further migration.  All migrations together make the tables that a new store gets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async.storage.dialect import Script


FIRST: Final = 1  # the version of the tables that 0.1.0 makes


@attrs.frozen
class Migration:
    """
    The *statements* that bring tables of the version before up to *version*.

    They are in the language of ``dialect``, for both databases, and have no values, so that they can be
    printed for a role that may change tables.
    """

    version: int
    statements: tuple[str, ...]


@attrs.frozen
class Schema:
    """
    The versions of the tables of one kind of store, from ``FIRST`` on.

    *anew* is what errors advise where the tables are those of no release.
    """

    anew: str
    migrations: tuple[Migration, ...] = ()

    @property
    def version(self) -> int:
        """The version that new tables have."""
        return FIRST + len(self.migrations)

    def check(self, name: str, found: object) -> int:
        """
        Return the version *found* in the tables of what errors call *name*.

        Raises:
            JournalError: The package does not know it, or there is none.
        """
        text = "" if found is None else str(found)
        known = int(text) if text.isascii() and text.isdigit() else 0
        if FIRST <= known <= self.version:
            return known
        last = f" to {self.version}" if self.version > FIRST else ""
        what = (
            f"{name}: its tables have {f'version {text}' if text else 'no version'}, and this package knows "
            f"version {FIRST}{last}"
        )
        if known > self.version:
            raise JournalError(
                f"{what}: a newer version of the package made them. Use that version, or a newer one."
            )
        raise JournalError(
            f"{what}: a development version of the package made them. {self.anew}."
        )

    def statements(self, found: int) -> Iterator[str]:
        """Yield the statements that bring tables of the version *found* up to date."""
        for migration in self.migrations[found - FIRST :]:
            yield from migration.statements

    def upgrade(self, found: int) -> Script[None]:
        """Bring tables of the version *found* up to date; the caller notes the new version."""
        for text in self.statements(found):
            yield text, ()
