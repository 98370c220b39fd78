"""
Conversion between JSON or plain data and models, generated from the attrs classes.

Valid items are decoded by ``decode_fast``.  Items that it rejects are decoded by ``decode_lenient``, where
an invalid field does not affect the others.  Both produce the same objects.  Each name is imported when it
is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from invsvc_async.codec.decoder import *
    from invsvc_async.codec.encode import *
else:
    _NAMES = (
        "decode decode_items enc_hook many meta_of one structure unstructure with_meta"
    )
    __all__ = [*_NAMES.split()]

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}", name=name
            )
        from invsvc_async.codec import decoder, encode

        found = globals()[name] = getattr(
            encode if name in encode.__all__ else decoder, name
        )
        return found
