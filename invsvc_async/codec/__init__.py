"""
Conversion between JSON or plain data and models, generated from the attrs classes.

Valid items are decoded by ``decode_fast``.  Items that it rejects are decoded by ``decode_lenient``, where
an invalid field does not affect the others.  Both produce the same objects.
"""

from __future__ import annotations

from invsvc_async.codec.decoder import decode, decode_items, many, member, meta_of, one, structure, with_meta
from invsvc_async.codec.encode import enc_hook, unstructure

__all__ = [
    "decode", "decode_items", "enc_hook", "many", "member", "meta_of", "one", "structure",
    "unstructure", "with_meta",
]  # fmt: skip
