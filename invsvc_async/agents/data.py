"""
What the service returned, as data for a language model: without secrets, and of a bounded size.

What is left out leaves a mark, an object with the member ``LEFT_OUT``, which no write accepts: so an agent
that reads a thing, changes a field and writes it back cannot destroy what it was not shown.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

if TYPE_CHECKING:
    from collections.abc import Iterable

    from invsvc_async.codec.exact_json import Wire

LEFT_OUT: Final = "invsvc_left_out"
LONGEST: Final = 20_000  # characters of one text
LARGEST: Final = 200_000  # characters of all data of one answer, as JSON
LONGEST_WORDS: Final = 2_000  # characters of an error in words
_SECRET_MEMBER: Final = "secret"
_NO_CREDENTIAL: Final = "[the credential]"


class ModelView:
    """
    Turns values into data that a language model may see.

    ``left_out`` are the places of values that were replaced by a mark.

    *hidden* are texts, such as the credential, that are replaced wherever they stand: a service may quote in
    an error what it was sent.
    """

    def __init__(self, hidden: Iterable[str] = ()) -> None:
        self.left_out: list[str] = []
        self._hidden = tuple(each for each in hidden if each)

    def data(self, value: Wire, place: str = "") -> Any:  # Any: JSON
        """Return *value*, which stands at *place* of an answer, as plain JSON values."""
        match value:
            case dict():
                return {
                    self.text(name): self._member(name, inner, place)
                    for name, inner in value.items()
                }
            case list() | tuple():
                return [
                    self.data(inner, f"{place}[{at}]") for at, inner in enumerate(value)
                ]
            case str() if len(value) > LONGEST:
                return self._mark(place, f"a text of {len(value):,} characters")
            case str():
                return self.text(value)
            case Decimal():
                return _number(value)
            case Raw():
                return self._mark(place, "what is no valid JSON")
            case _:
                return value

    def _member(self, name: str, inner: Wire, place: str) -> Any:  # Any: JSON
        at = place_of_member(place, name)
        if name == _SECRET_MEMBER and inner is not None:
            return self._mark(at, "a secret")
        return self.data(inner, at)

    def _mark(self, place: str, what: str) -> dict[str, str]:
        self.left_out.append(place)
        return {LEFT_OUT: what}

    def text(self, value: str) -> str:
        """Return *value* without what is hidden."""
        for each in self._hidden:
            value = value.replace(each, _NO_CREDENTIAL)
        return value

    def words(self, value: str) -> str:
        """Return *value* without what is hidden, in one line of a bounded length."""
        line = " ".join(self.text(value).split())
        if len(line) <= LONGEST_WORDS:
            return line
        return f"{line[:LONGEST_WORDS]}…"


def place_of_member(place: str, name: str) -> str:
    """Return where the member *name* stands of what stands at *place*, which is empty for the whole."""
    if place:
        return f"{place}.{name}"
    return name


def _number(value: Decimal) -> float | str:
    """Return a number of equal value, or its digits as text if there is none."""
    number = float(value)
    return number if Decimal(repr(number)) == value else str(value)


def as_json(plain: object) -> str:
    """
    Return *plain* as JSON in ASCII.

    No character of it can end a text, hide, or change the direction of what is shown: all others than ASCII
    are escaped.
    """
    return json.dumps(plain, ensure_ascii=True)
