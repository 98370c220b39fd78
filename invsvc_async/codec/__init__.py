"""
Convert between bytes or plain data and models, by one mechanism made from the attrs classes; never do I/O.

Sound items go the fast way; an item that it refuses goes the careful way, where a broken field costs only
itself.  Both give the same objects.
"""

from __future__ import annotations

from invsvc_async.codec.decoder import decode, decode_items, many, member, meta_of, one, structure, with_meta
from invsvc_async.codec.encode import unstructure

__all__ = [
    "decode",
    "decode_items",
    "many",
    "member",
    "meta_of",
    "one",
    "structure",
    "unstructure",
    "with_meta",
]
