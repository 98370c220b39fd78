"""What is iterated by ``async for`` alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn


class OnlyAsync:
    """A base of what has ``__aiter__``: a plain ``for`` raises an error that says what to write instead."""

    __slots__ = ()

    if not TYPE_CHECKING:  # otherwise a type checker would accept a plain `for`

        def __iter__(self) -> NoReturn:
            raise TypeError(
                f"{type(self).__name__}: a plain `for` cannot wait for the service. Write `async for`, or in "
                "code without async `for … in portal.iterate(…)`."
            )
