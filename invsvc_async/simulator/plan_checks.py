"""Checks of the settings of the service's plans, and the form in which a command line has them."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def digits(seconds: float) -> str:
    """Format *seconds* for steps and headers: all digits, without an exponent."""
    return f"{Decimal(repr(float(seconds))).normalize():f}"


def check_seconds(
    name: str,
    value: object,
    *,
    or_none: bool = False,
) -> None:
    """Raise ValueError if *value* is not a finite number of seconds, 0 or more."""
    if value is None and or_none:
        return
    if not _is_number_up_to(value, math.inf):
        others = ", or None" if or_none else ""
        raise ValueError(f"{name} must be seconds, 0 or more{others}, not {value!r}")


def check_probability(name: str, value: object) -> None:
    """Raise ValueError if *value* is not a probability."""
    if not _is_number_up_to(value, 1):
        raise ValueError(f"{name} must be a probability, 0 to 1, not {value!r}")


def check_known(
    name: str,
    chosen: Iterable[str],
    known: Iterable[str],
) -> None:
    """Raise ValueError if *chosen* is one text, is empty, or has what is not among *known*."""
    if isinstance(chosen, str):
        raise ValueError(f"{name} takes several, such as {(chosen,)!r}, not one text")  # noqa: TRY004 - what is promised
    unknown = sorted(set(chosen) - set(known)) if chosen else ["nothing"]
    if unknown:
        raise ValueError(
            f"{name}: {', '.join(unknown)} is not among {', '.join(known)}"
        )


def parts_of(text: str) -> Iterator[tuple[str, str]]:
    """Parse ``rate=0.2,kinds=500+reset`` as names and values.  Nothing, and ``none``, have no parts."""
    if text in ("", "none"):
        return
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        yield name, value


def listed(value: str) -> tuple[str, ...]:
    """Parse ``500+reset`` as several names."""
    return tuple(filter(None, value.split("+")))


def _is_number_up_to(value: object, high: float) -> bool:
    if not isinstance(value, int | float) or not math.isfinite(value):
        return False
    return 0 <= value <= high
