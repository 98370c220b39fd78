"""What a search for duplicates finds."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import WireObject

MOST_NAMED: Final = (
    50  # items of a duplicate that are listed; `count` has how many there are
)


class Certainty(StrEnum):
    """
    How much the lists show.

    ``CERTAIN``: what ``why`` says is a fact that nobody can have wanted by accident, such as one idempotency
    key with two invoices.  ``LIKELY``: the items are alike, but two of them may have been wanted.
    """

    CERTAIN = "certain"
    LIKELY = "likely"


@attrs.frozen(kw_only=True)
class Duplicate:
    """
    Things of one list that are duplicates of each other, for certain or likely, and ``why``.

    ``count`` is how many there are, and ``in_effect`` how many of them are neither canceled nor inactive.
    ``items`` has the first 50 of them, oldest first, as plain data: fields that tell them apart, in the
    service's own form (times in ms).  No secret of a webhook is among them.
    """

    what: str
    certainty: Certainty
    why: str
    count: int
    in_effect: int
    items: tuple[WireObject, ...]

    @property
    def is_open(self) -> bool:
        """Whether more than one of them is in effect; otherwise nothing is left to do."""
        return self.in_effect > 1

    def to_dict(self) -> WireObject:
        """Return the duplicate as plain data."""
        plain = attrs.asdict(self, recurse=False)
        return plain | {
            "certainty": str(self.certainty),
            "open": self.is_open,
            "items": list(self.items),
        }
