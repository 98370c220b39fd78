"""Files of tax retentions."""

from __future__ import annotations

import base64
import binascii

import attrs

from invsvc_async.errors import FileEncodingError
from invsvc_async.models.common import ABSENT, Model, wire

__all__ = ["RetentionFile"]


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class RetentionFile(Model):
    """
    A file of a stamped retention: ``encoded`` is its content as received, ``type`` its media type.

    Spec: Retention file.
    """

    encoded: str = attrs.field(default=ABSENT, metadata=wire("content"))
    filename: str = ABSENT
    type: str = ABSENT

    @property
    def content(self) -> bytes:
        """
        Decode the bytes of the file.  The specification names no encoding; base64 is assumed.

        Raises:
            FileEncodingError: ``encoded`` is not base64.
        """
        try:
            return base64.b64decode("".join(self.encoded.split()), validate=True)
        except (binascii.Error, ValueError) as cause:
            raise FileEncodingError(
                f"content: the file is not base64 ({cause}). Read .encoded, which is as received."
            ) from cause
