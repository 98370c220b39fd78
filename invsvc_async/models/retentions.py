"""Hold the files of tax retentions; never write one to disk."""

from __future__ import annotations

import base64
import binascii

import attrs

from invsvc_async._errors import FileEncodingError
from invsvc_async.models.common import ABSENT, Model, wire

__all__ = ["RetentionFile"]


@attrs.frozen(kw_only=True, eq=False, repr=False, getstate_setstate=False)
class RetentionFile(Model):
    """
    A file of a stamped retention: ``encoded`` as received, ``type`` its media type.

    Spec: Retention file.
    """

    encoded: str = attrs.field(default=ABSENT, metadata=wire("content"))
    filename: str = ABSENT
    type: str = ABSENT

    @property
    def content(self) -> bytes:
        """
        Give the bytes of the file, on the assumption that ``encoded`` is base64: the specification is silent.

        Raises:
            FileEncodingError: It is not.
        """
        try:
            return base64.b64decode("".join(self.encoded.split()), validate=True)
        except (binascii.Error, ValueError) as cause:
            raise FileEncodingError(
                f"the file's content is not base64 ({cause}): read .encoded, which is as received"
            ) from cause
