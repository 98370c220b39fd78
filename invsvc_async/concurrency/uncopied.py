"""Objects of which a copy would do the same work a second time."""

from __future__ import annotations

from typing import ClassVar, NoReturn, SupportsIndex


class Uncopied:
    """A base of what is neither copied, by ``copy.copy`` or ``copy.deepcopy``, nor pickled."""

    __slots__ = ()

    _why_uncopied: ClassVar[str] = ""  # a sentence or two, with what to do instead

    def __reduce_ex__(self, _protocol: SupportsIndex, /) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__}: cannot be copied or pickled. {self._why_uncopied}"
        )
