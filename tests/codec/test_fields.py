"""Objects that are filled while they are still blank."""

import pickle

import attrs
import pytest

from invsvc_async.codec.fields import maker_of
from invsvc_async.reconcile.history import Attempt, End, Evidence, Verdict
from invsvc_async.reconcile.intent import Intent, Scope
from invsvc_async.reconcile.outcome import OutcomeBase
from invsvc_async.settings import ReconcilePolicy, Timeouts

INTENT = Intent(
    key="k", operation="teams.create", path={}, query={}, headers={}, scope=Scope(base_url="https://a.example"),
    policy=ReconcilePolicy(), timeouts=Timeouts(),
)  # fmt: skip
MADE = [
    Attempt(started=1.0, ended=2.0, end=End.LOST),
    Attempt(
        started=1.0,
        ended=2.0,
        end=End.ANSWERED,
        status=200,
        readable=True,
        stamp=3,
        timeout=5.0,
    ),
    Scope(base_url="https://a.example", team="t"),
    INTENT,
    OutcomeBase(
        verdict=Verdict.APPLIED,
        message="m",
        evidence=Evidence(basis="answered"),
        value=3,
        started_as=INTENT,
    ),
]


@pytest.mark.parametrize("made", MADE, ids=lambda made: type(made).__name__)
def test_it_is_what_the_class_makes(made):
    """An object of the maker equals one of the class, is frozen as well, and can be copied and stored."""
    names = [field.name for field in attrs.fields(type(made))]
    copy = maker_of(type(made))(**{name: getattr(made, name) for name in names})
    assert type(copy) is type(made)
    assert copy == made
    assert repr(copy) == repr(made)
    assert pickle.loads(pickle.dumps(copy)) == made  # noqa: S301 - our own
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(copy, names[0], "changed")


def test_what_has_no_plain_default_must_be_given():
    """A missing argument is an error, also where the class would call a factory; plain defaults are the same."""
    make = maker_of(Intent)
    with pytest.raises(TypeError, match="path"):
        make(key="k", operation="o", scope=Scope(base_url="b"))
    assert maker_of(Attempt)(started=1.0, ended=2.0, end=End.LOST) == Attempt(
        started=1.0, ended=2.0, end=End.LOST
    )
