"""
What users note of a keyed write: it is stored with the key and shown by lists, and not sent.

``Write.keyed`` makes one value of it, and each way of a write to a store passes that on whole: the
specification of the write, a run under its key, and the entries of batches and outboxes.  So a further field
costs nothing on these ways, and none of them can lose it.  How a field is shown and looked for is in
``durable/store/noted.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from invsvc_async.errors import InvalidRequestError
from invsvc_async.writes.labels import problems_of, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping


# part of each write, and attrs classes are slower
class Noted(msgspec.Struct, frozen=True, kw_only=True):
    """
    What is noted of a write, each field a text as it is stored; ``None``: nothing.

    A field has the name of the argument of ``Write.keyed`` and of the column of the entries.

    - ``labels``: in the form of ``labels.text_of``.
    """

    labels: str | None = None


NOTHING_NOTED: Final = Noted()
NOTED_NAMES: Final = Noted.__struct_fields__


def noted_of(operation: str, *, labels: Mapping[str, str] | None) -> Noted:
    """
    Return what a user notes of a write of *operation*.

    Raises:
        InvalidRequestError: Something cannot be stored.
    """
    if labels is None:
        return NOTHING_NOTED
    if problems := problems_of(labels):
        raise InvalidRequestError(problems, operation=operation)
    return Noted(labels=text_of(labels))
