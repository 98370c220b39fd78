"""What settings refuse, in words, when they are made."""

from __future__ import annotations

import copy
import pickle

import attrs
import pytest

from invsvc_async import (
    ApiKey,
    CallOptions,
    Client,
    ConfigurationError,
    ParameterNames,
    ReadRetries,
    ReconcilePolicy,
    Timeouts,
)

BASE = "http://127.0.0.1:1/v2"


@pytest.mark.parametrize(
    ("cls", "name", "value", "said"),
    [
        (Timeouts, "attempt", 0, "seconds above 0"),
        (Timeouts, "call", "30", "seconds above 0"),
        (Timeouts, "connect", True, "seconds above 0"),
        (ReadRetries, "attempts", 0, "integer, 1 or above"),
        (ReadRetries, "quota", -1, "0 or above"),
        (ReconcilePolicy, "deadline", float("inf"), "0 or above"),
        pytest.param(
            ReconcilePolicy, "deadline", 10**400, "0 or above", id="huge deadline"
        ),
        pytest.param(Timeouts, "call", 10**400, "seconds above 0", id="huge timeout"),
        (ReconcilePolicy, "max_resends", 1.5, "integer, 0 or above"),
        (ReconcilePolicy, "resend", "maybe", "'proven' or 'never'"),
        (ReconcilePolicy, "wait_when_limited", "false", "true or false"),
        (ReconcilePolicy, "journey_reads_show_drafts", 1, "true or false"),
        (
            ReconcilePolicy,
            "journey_reader",
            "GET",
            "'journeys.get', None or an async callable",
        ),
        (ParameterNames, "limit", 3, "a parameter name or None"),
        (ParameterNames, "cursor", "", "a parameter name or None"),
    ],
)
def test_setting_that_makes_no_sense(cls, name, value, said):
    """The setting is named, with what it takes and what it got."""
    with pytest.raises(
        ConfigurationError, match=f"^{name}: must be .*{said}"
    ) as raised:
        cls(**{name: value})

    assert repr(value) in str(raised.value)


def test_reader_of_journeys():
    """A callable, none and the usual name are readers of a journey."""
    for reader in (None, "journeys.get", print):
        assert ReconcilePolicy(journey_reader=reader).journey_reader is reader


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"timeout": 5}, r"timeout: must be Timeouts\(…\), not int"),
        ({"reads": 3}, r"reads: must be ReadRetries\(…\), not int"),
        ({"reconcile": None}, r"reconcile: must be ReconcilePolicy\(…\), not NoneType"),
        ({"names": {"limit": "n"}}, r"names: must be ParameterNames\(…\), not dict"),
        ({"team": 7}, "team: must be the id of a team"),
    ],
)
async def test_client_with_an_option_of_another_kind(given, said):
    """It is named when it is given, to a client or to a view, and not when something is sent."""
    with pytest.raises(ConfigurationError, match=said):
        Client(BASE, ApiKey("key"), **given)
    async with Client(BASE, ApiKey("key")) as client:
        with pytest.raises(ConfigurationError, match=said):
            client.with_options(**given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"max_concurrency": 0},
            "max_concurrency: must be an integer, 1 or above, not 0",
        ),
        (
            {"max_concurrency": "fast"},
            "max_concurrency: must be an integer, 1 or above, not 'fast'",
        ),
        ({"max_concurrency": True}, "max_concurrency: must be an integer"),
        (
            {"max_response_bytes": 0},
            "max_response_bytes: must be an integer, 1 or above",
        ),
        (
            {"headers": {"X-Ours": 5}},
            "headers and user_agent: names and values must be strings",
        ),
        ({"user_agent": 5}, "headers and user_agent: names and values must be strings"),
    ],
)
def test_client_that_could_not_work(given, said):
    """What would fail, or wait for ever, at the first request is refused before there is one."""
    with pytest.raises(ConfigurationError, match=said):
        Client(BASE, ApiKey("key"), **given)


async def test_deadline_that_leaves_no_time_to_send_again():
    """A client, a view and a write say so, and from which deadline on there is time; not if nothing is to be sent again."""
    key, short = ApiKey("key"), ReconcilePolicy(deadline=45.0)
    hook = {"url": "https://me.example/", "events": ["invoice.created"]}
    with pytest.warns(UserWarning, match=r"deadline: 45 s .* more than 45 s"):
        client = Client("https://host.example/v2", key, reconcile=short)
    async with client:
        for timeout, least in (
            (Timeouts(attempt=2.0), 45.0),
            (Timeouts(attempt=60.0), 45.5),
        ):
            client.with_options(
                timeout=timeout, reconcile=ReconcilePolicy(deadline=least + 0.5)
            )
        with pytest.warns(UserWarning, match="more than 70 s"):
            client.with_options(
                reconcile=ReconcilePolicy(settle_after_loss=27.5, deadline=60.0)
            )
        with pytest.warns(UserWarning, match=r"deadline: 5 s .* more than 45 s"):
            client.webhooks.create(**hook).with_policy(
                ReconcilePolicy(), deadline=5.0
            ).close()
        client.webhooks.create(**hook).with_policy(deadline=5.0, resend="never").close()
        client.with_options(
            reconcile=ReconcilePolicy(deadline=5.0, max_resends=0)
        ).for_team("team_1")


def test_equality_and_repr():
    """Settings are equal by their fields and class; the repr shows no value of a header."""
    assert Timeouts(call=5) == Timeouts(call=5.0)
    assert hash(Timeouts(call=5)) == hash(Timeouts(call=5.0))
    assert Timeouts(call=5) != Timeouts()
    assert Timeouts() != "another class"
    assert repr(Timeouts()) == "Timeouts(attempt=30.0, connect=10.0, call=60.0)"
    assert (
        repr(CallOptions(headers={"X-Trace": "value"}))
        == "CallOptions(timeout=None, headers=<X-Trace>)"
    )


@pytest.mark.parametrize(
    "settings",
    [
        Timeouts(call=5),
        CallOptions(headers={"X-Trace": "value"}),
        ReadRetries(attempts=2),
        ReconcilePolicy(deadline=45.5, journey_reader=None),
        ParameterNames(cursor=None),
    ],
    ids=lambda settings: type(settings).__name__,
)
def test_copies(settings):
    """A copy of settings is equal and frozen, and one with another value is not equal."""
    pickled = pickle.dumps(settings)
    for copied in (pickle.loads(pickled), copy.deepcopy(settings)):  # noqa: S301 - our own
        assert copied == settings
        assert attrs.asdict(copied) == attrs.asdict(settings)
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            # reaches: it must be refused
            setattr(copied, attrs.fields(type(copied))[0].name, None)
    name = attrs.fields(type(settings))[0].name
    value = "other" if isinstance(settings, ParameterNames) else 7
    changed = attrs.evolve(settings, **{name: value})
    assert changed != settings
