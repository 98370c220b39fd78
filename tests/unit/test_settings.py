"""What settings refuse, in words, when they are made."""

from __future__ import annotations

import pytest

from invsvc_async import ConfigurationError, ParameterNames, ReadRetries, ReconcilePolicy, Timeouts


@pytest.mark.parametrize(
    ("cls", "name", "value", "said"),
    [
        (Timeouts, "attempt", 0, "seconds above 0"),
        (Timeouts, "call", "30", "seconds above 0"),
        (Timeouts, "connect", True, "seconds above 0"),
        (ReadRetries, "attempts", 0, "whole number, 1 or above"),
        (ReadRetries, "quota", -1, "0 or above"),
        (ReconcilePolicy, "deadline", float("inf"), "0 or above"),
        (ReconcilePolicy, "max_resends", 1.5, "whole number, 0 or above"),
        (ReconcilePolicy, "resend", "maybe", "'proven' or 'never'"),
        (ReconcilePolicy, "wait_when_limited", "false", "true or false"),
        (ReconcilePolicy, "journey_reads_show_drafts", 1, "true or false"),
        (ReconcilePolicy, "journey_reader", "GET", "'journeys.get', None or an async callable"),
        (ParameterNames, "limit", 3, "a parameter's name or None"),
        (ParameterNames, "cursor", "", "a parameter's name or None"),
    ],
)
def test_setting_that_makes_no_sense(cls, name, value, said):
    """The setting is named, with what it takes and what it got."""
    with pytest.raises(ConfigurationError, match=f"^{name} must be .*{said}") as raised:
        cls(**{name: value})

    assert repr(value) in str(raised.value)


def test_reader_of_journeys():
    """A callable, none and the usual name are readers of a journey."""
    for reader in (None, "journeys.get", print):
        assert ReconcilePolicy(journey_reader=reader).journey_reader is reader
