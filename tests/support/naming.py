"""Names for the intents of single writes, by which the judges of tests know them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from msgspec.structs import replace

from invsvc_async.writes.new_intent import intent_of

if TYPE_CHECKING:
    from invsvc_async.writes.write import Write


def named(write: Write[Any], name: str) -> Write[Any]:
    """Call the intent of *write* by *name*, instead of a random key. It is no key of a user's own."""
    write._intent = attrs.evolve(intent_of(replace(write._spec, key=name)), nonce=None)
    return write
