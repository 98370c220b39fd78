"""How stored events are handled: attempts, times, delays and retention."""

from __future__ import annotations

import attrs

from invsvc_async.errors import ConfigurationError

__all__ = ["InboxPolicy"]

_LONGEST = 1e9  # s, 31 years: an endless lease would outlive its process, and the event would wait for ever


def _positive(_: object, field: attrs.Attribute[float], seconds: float) -> None:
    if not isinstance(seconds, (int, float)) or not 0 < seconds <= _LONGEST:
        raise ConfigurationError(
            f"{field.name}: {seconds!r} is not valid. Use more than 0 and at most {_LONGEST:.0e} seconds."
        )


def _at_least_one(_: object, field: attrs.Attribute[int], number: int) -> None:
    if not isinstance(number, int) or number < 1:
        raise ConfigurationError(f"{field.name}: {number!r} is not valid. Use a whole number, at least 1.")


def _not_longer_than_keep(policy: InboxPolicy, field: attrs.Attribute[float], seconds: float | None) -> None:
    if seconds is None:
        return
    _positive(policy, field, seconds)
    if seconds > policy.keep:
        raise ConfigurationError(
            f"keep_bodies: {seconds!r} is longer than keep, {policy.keep!r}. Raise keep, or lower this."
        )


@attrs.frozen(kw_only=True)
class InboxPolicy:
    """
    How stored events are handled.  All times are in seconds.

    An event is tried ``attempts`` times, each time for at most ``timeout``, and is then a dead letter.
    Between tries, the worker waits a random part of a delay that starts at ``initial`` and doubles up to
    ``maximum``.  At most ``concurrency`` events are handled at once.  The store is read every ``poll``, for
    events that other processes have stored.  Handled events are remembered for ``keep``, to recognise late
    duplicates, and their bodies are kept for ``keep_bodies`` (none by default), so that they can be replayed.
    Dead letters are deleted after ``keep_dead``; by default, they stay until somebody deals with them.

    Raises:
        ConfigurationError: A value is not positive or too large, or bodies are to be kept longer than events.
    """

    attempts: int = attrs.field(default=12, validator=_at_least_one)
    timeout: float = attrs.field(default=60.0, validator=_positive)
    initial: float = attrs.field(default=1.0, validator=_positive)
    maximum: float = attrs.field(default=3600.0, validator=_positive)
    concurrency: int = attrs.field(default=16, validator=_at_least_one)
    poll: float = attrs.field(default=1.0, validator=_positive)
    keep: float = attrs.field(default=30 * 86400.0, validator=_positive)
    keep_bodies: float | None = attrs.field(default=None, validator=_not_longer_than_keep)
    keep_dead: float | None = attrs.field(default=None, validator=attrs.validators.optional(_positive))

    def delay(self, attempts: int, chance: float) -> float:
        """Return the delay after *attempts*; *chance* is from 0 to 1."""
        return chance * min(self.maximum, self.initial * 2.0 ** min(attempts - 1, 62))
