"""Properties of all models: both decoders agree, nothing is lost, and only our errors are raised."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Any, get_args, get_origin

import attrs
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from invsvc_async import codec, models
from invsvc_async.codec import envelope
from invsvc_async.codec.exact_json import salvage
from invsvc_async.codec.fields import enum_in, fields_of
from invsvc_async.errors import FieldError, InvsvcError
from invsvc_async.models.common import Model
from tests.codec.recorded import spelt

pytestmark = [pytest.mark.fuzz, pytest.mark.one_python]

MODELS = [
    found for name in models.__all__
    if isinstance(found := getattr(models, name), type) and issubclass(found, Model) and found is not Model
]  # fmt: skip
SAMPLED = (models.Invoice, models.Journey, models.Webhook)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
decimals = st.decimals(allow_nan=False, allow_infinity=False).filter(
    lambda it: "." in str(it) or "E" in str(it)
)
numbers = st.integers() | st.integers(-3, 3) | decimals
plain = st.recursive(
    st.none() | st.booleans() | texts | numbers,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
    ),
    max_leaves=6,
)


def fitting(hint: Any) -> st.SearchStrategy[Any]:
    """Draw wire values that fit the type of a field."""
    if isinstance(hint, type) and issubclass(hint, Model):
        return objects(hint)
    if get_origin(hint) is tuple:
        return st.lists(fitting(get_args(hint)[0]), max_size=2)
    if get_origin(hint) is Mapping:
        return st.dictionaries(texts, fitting(get_args(hint)[1]), max_size=2)
    if known := enum_in(hint):
        return st.sampled_from(sorted(known)) | texts
    times = st.integers(0, 253_402_300_799_999)
    return {
        str: texts, bool: st.booleans(), int: st.integers(), float: st.integers(-9, 9) | st.floats(
            allow_nan=False, allow_infinity=False).map(lambda it: Decimal(repr(it))), Decimal: numbers, datetime: times,
    }.get(hint, plain)  # fmt: skip


def objects(cls: type[Model]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw wire objects: mostly complete and valid, some with absent, broken, null or unknown members."""
    fields = fields_of(cls)
    sound = {
        field.wire: fitting(field.type)
        | (st.none() if field.nullable else st.nothing())
        for field in fields
    }
    whole = st.fixed_dictionaries(sound)
    gaps = st.fixed_dictionaries({}, optional=sound)
    broken = st.fixed_dictionaries({}, optional={field.wire: plain for field in fields})
    unknown = st.dictionaries(texts, plain, max_size=2)
    return (
        whole
        | gaps
        | st.tuples(whole, broken).map(merged)
        | st.tuples(unknown, gaps, broken).map(merged)
    )


def merged(parts: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """Merge one object into the other."""
    return {name: value for part in parts for name, value in part.items()}


def told(problems: tuple[FieldError, ...]) -> list[tuple[str, str, object]]:
    """Make problems comparable."""
    return [(problem.address, problem.why, spelt(problem.raw)) for problem in problems]


@pytest.mark.parametrize(
    "cls",
    [
        pytest.param(cls, id=cls.__name__, marks=() if cls in SAMPLED else pytest.mark.slow)
        for cls in MODELS
    ],
)  # fmt: skip
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn=st.data())
def test_both_ways_agree_and_lose_nothing(cls, drawn):
    """Bytes and plain data give equal objects, the same problems, and the exact wire form."""
    items = drawn.draw(st.lists(objects(cls), min_size=1, max_size=3))
    content = [envelope.dumps(item) for item in items]

    fast = codec.decode_items(cls, content)
    careful = tuple(codec.structure(cls, envelope.loads(item)) for item in content)

    for one, other, item in zip(fast, careful, content, strict=True):
        assert one == other
        assert repr(one) == repr(other)
        assert told(one.problems) == told(other.problems)
        assert (
            spelt(codec.unstructure(one))
            == spelt(codec.unstructure(other))
            == spelt(envelope.loads(item))
        )
        assert spelt(codec.unstructure(pickle.loads(pickle.dumps(one)))) == spelt(  # noqa: S301
            envelope.loads(item)
        )
        assert attrs.evolve(one) == one


@settings(max_examples=300, deadline=None)
@given(
    content=st.binary(max_size=60)
    | plain.map(envelope.dumps).flatmap(
        lambda it: st.binary(max_size=2).map(lambda b: it[:-1] + b)
    )
)
def test_any_bytes_end_in_a_model_or_an_error_of_ours(content):
    """Any bytes raise nothing but InvsvcError."""
    salvage(content)
    for read in (envelope.loads, lambda it: codec.decode(models.Webhook, it)):
        with suppress(InvsvcError):
            read(content)


@settings(max_examples=100, deadline=None)
@given(value=plain, cls=st.sampled_from(MODELS))
def test_any_plain_value_gives_a_model(value, cls):
    """Structuring plain data does not raise, and unstructuring returns the input."""
    model = codec.structure(cls, value)

    assert spelt(codec.unstructure(model)) == spelt(value)
    assert isinstance(repr(model), str)
