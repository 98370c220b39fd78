"""
The limit on the nesting of JSON, the same for answers, deliveries, intents and files.

The parser's own limit depends on the interpreter and on its free stack: some hundreds of levels on Python
3.11, more than 100,000 on 3.14.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from msgspec import Raw


DEEPEST: Final = 256  # levels of arrays and objects: recursive functions reach them on every interpreter
# bytes: each level has two brackets, so that shorter JSON has too few of them
SHORT: Final = 2 * DEEPEST

_ESCAPE: Final = rb"(?s)\\."
# after the escapes were removed; the last one may be cut off
_STRING: Final = rb'"[^"]*"?'
_OTHERS: Final = bytes(set(range(256)).difference(b'[]{}"'))
_STEPS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class NestingError(ValueError):
    """JSON is nested deeper than ``DEEPEST`` levels."""

    def __init__(self) -> None:
        super().__init__(f"it is nested deeper than {DEEPEST} levels")


def check_depth(content: bytes | Raw, *, around: int = 0) -> None:
    """
    Reject JSON that is nested too deeply, in time proportional to its length.

    *around* is the number of levels that *content* was taken out of.  Short texts and texts with few brackets
    are not searched further.

    Raises:
        NestingError: It is nested too deeply.  What is not JSON may raise it or not.
    """
    levels = DEEPEST - around
    whole = bytes(content)
    if len(whole) <= 2 * levels:
        return
    # On CPython 3.11, `bytes.count` compares each byte, and takes four times as long as `replace`.
    rest = whole.replace(b"{", b"", levels + 1).replace(b"[", b"", levels + 1)
    if len(whole) - len(rest) <= levels:
        return
    if b"\\" in whole:
        whole = re.sub(_ESCAPE, b"", whole)
    kept = whole.translate(None, _OTHERS).replace(b'""', b"")
    brackets = re.sub(_STRING, b"", kept)
    if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > levels:
        raise NestingError
