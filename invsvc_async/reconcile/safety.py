"""
The settings of a policy that decide how safe a verdict is, and which of them count if two runs send a write.

Another run of the same write may have other settings: of a later version of the program, or of another one.
The sends of each run are judged by its own.  As soon as there are sends of both, all are judged by the safer
of each setting (:func:`safer_of_both`), and the intent stores those for the next run.

Until a run has sent the write itself, it judges by the settings of the runs before.  Longer ones would not be
safer then: whoever sent the write has kept its turn, and let no sibling in, only as long as its own say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from invsvc_async.settings import LESS_IS_SAFER, MORE_IS_SAFER

if TYPE_CHECKING:
    from invsvc_async.settings import ReconcilePolicy


def _time(_: object, field: attrs.Attribute[float], value: float) -> None:
    if value < 0:
        raise ValueError(f"{field.name}: is negative")


@attrs.frozen(kw_only=True)
class SafetySettings:
    """Those of a :class:`ReconcilePolicy`, which says what each of them means.  All are in seconds."""

    settle_after_error: float = attrs.field(validator=_time)
    settle_after_loss: float = attrs.field(validator=_time)
    reads_lag: float = attrs.field(validator=_time)
    clock_slack: float = attrs.field(validator=_time)
    absence_within: float = attrs.field(validator=_time)
    clock_band: float = attrs.field(validator=_time)


def safety_of(policy: ReconcilePolicy) -> SafetySettings:
    """Return the safety settings of *policy*."""
    names = (*MORE_IS_SAFER, *LESS_IS_SAFER)
    return SafetySettings(**{name: getattr(policy, name) for name in names})


def with_safety(policy: ReconcilePolicy, safety: SafetySettings) -> ReconcilePolicy:
    """Return *policy* with the settings of *safety*: the same object if it has them."""
    if safety_of(policy) == safety:
        return policy
    return attrs.evolve(policy, **attrs.asdict(safety))


def safer_settings(
    earlier: ReconcilePolicy, own: ReconcilePolicy
) -> SafetySettings | None:
    """Return the safer of each setting of two policies; ``None`` if those are the settings of *earlier*."""
    if own is earlier:
        return None
    most = {
        name: max(getattr(earlier, name), getattr(own, name)) for name in MORE_IS_SAFER
    }
    least = {
        name: min(getattr(earlier, name), getattr(own, name)) for name in LESS_IS_SAFER
    }
    found = SafetySettings(**most, **least)
    return None if found == safety_of(earlier) else found


def safer_of_both(earlier: ReconcilePolicy, own: ReconcilePolicy) -> ReconcilePolicy:
    """
    Return *earlier* with the safer settings of both; the same object if those are its own.

    With a longer window it has the longer deadline as well, in which that fits.
    """
    safety = safer_settings(earlier, own)
    if safety is None:
        return earlier
    deadline = earlier.deadline
    if safety.settle_after_loss > earlier.settle_after_loss:
        deadline = max(deadline, own.deadline)
    return attrs.evolve(earlier, deadline=deadline, **attrs.asdict(safety))
