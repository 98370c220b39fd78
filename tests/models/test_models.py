"""Models as values: absent, null and broken fields, equality, copies."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal

import attrs
import pytest

from invsvc_async import codec, models
from invsvc_async.errors import FieldError, FileEncodingError
from invsvc_async.models import (
    UNSET,
    Address,
    Customer,
    Invoice,
    Meta,
    Page,
    RetentionFile,
    Webhook,
)

HOOK = Webhook(id="wh_1", url="https://me.example/in")
BROKEN = codec.structure(
    Invoice,
    {"uuid": "U", "total": "12.5", "client": {"address": {"city": 7}, "id": "c"}},
)


def test_import_of_the_package_makes_no_class():
    """Importing the package of models imports none of its modules, but dir() lists all names."""
    code = "import sys, invsvc_async.models; print('Webhook' in dir(invsvc_async.models), [name for name in sys.modules if 'invsvc_async.models.' in name])"

    said = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout

    assert said.strip() == "True []"


def test_every_public_name_is_there():
    """Each name of ``__all__`` can be imported; any other raises AttributeError."""
    assert {type(getattr(models, name)).__name__ for name in models.__all__}
    with pytest.raises(AttributeError, match="Invoices"):
        _ = models.Invoices


@pytest.mark.parametrize("name", ["description", "secret"])
def test_optional_field_that_is_absent_reads_as_none(name):
    """A field that the specification calls optional reads as None if it is absent."""
    assert getattr(HOOK, name) is None


def test_required_field_that_is_absent_raises_when_read():
    """Reading a required field that is absent raises with its address; it is not a problem of the item."""
    with pytest.raises(FieldError, match=r"\$\.created_at: absent") as caught:
        _ = HOOK.created_at

    assert caught.value.address == "$.created_at"
    assert "The answer does not have it" in str(caught.value)
    assert HOOK.problems == ()
    assert not hasattr(HOOK, "created_at")


def test_name_that_is_no_field_is_a_plain_attribute_error():
    """A misspelt attribute raises AttributeError that names it, not FieldError."""
    with pytest.raises(AttributeError, match="creatd_at") as caught:
        _ = HOOK.creatd_at

    assert not isinstance(caught.value, FieldError)


def test_broken_field_raises_when_read_and_costs_no_other():
    """Reading a field of the wrong type raises with its address and raw value; other fields can be read."""
    with pytest.raises(FieldError) as caught:
        _ = BROKEN.total

    assert (caught.value.address, caught.value.raw) == ("$.total", "12.5")
    assert BROKEN.uuid == "U"
    assert BROKEN.client.id == "c"


def test_broken_field_that_is_read_often():
    """Each read raises a new error, because an error that is raised again keeps all earlier frames."""
    caught = []
    for _ in range(2):
        with pytest.raises(FieldError) as each:
            _ = BROKEN.total
        caught.append(each.value)

    assert caught[0] is not caught[1]
    assert str(caught[0]) == str(caught[1])


def test_problems_within_are_listed_with_their_whole_address():
    """A model lists the problems of the models in it, with addresses from its own root."""
    assert [problem.address for problem in BROKEN.problems] == [
        "$.total",
        "$.client.address.city",
    ]
    assert [problem.address for problem in BROKEN.client.address.problems] == ["$.city"]


def test_problems_of_elements_and_members_are_addressed():
    """Elements have their index and members of an object their name in the address."""
    invoice = codec.structure(Invoice, {"items": [{}, {"quantity": True}, None]})
    team = codec.structure(models.Team, {"integrations": {"shop": {"completed": 1}}})

    assert [problem.address for problem in invoice.problems] == [
        "$.items[1].quantity",
        "$.items[2]",
    ]
    assert [problem.address for problem in team.problems] == [
        "$.integrations.shop.completed"
    ]


def test_element_that_is_no_object_says_so_at_every_field():
    """A null element keeps its place; reading any of its fields raises."""
    (item,) = codec.structure(Invoice, {"items": [None]}).items

    with pytest.raises(FieldError, match="expected an object, got null"):
        _ = item.quantity


def test_equal_models_have_equal_hashes():
    """Equal values are one element of a set, whether decoded or built."""
    same = codec.decode(Webhook, b'{"id": "wh_1", "url": "https://me.example/in"}')

    assert same == HOOK
    assert len({same, HOOK}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (HOOK, attrs.evolve(HOOK, url="https://other.example")),
        (HOOK, attrs.evolve(HOOK, created_at=datetime(2025, 5, 1, tzinfo=UTC))),
        (HOOK, attrs.evolve(HOOK, extra={"new": 1})),
        (HOOK, "wh_1"),
        (
            BROKEN,
            codec.structure(Invoice, {**codec.unstructure(BROKEN), "total": "13"}),
        ),
        (
            BROKEN,
            codec.structure(
                Invoice, {"uuid": "U", "client": {"address": {"city": 7}, "id": "c"}}
            ),
        ),
        (Address(city="x"), Customer()),
    ],
)
def test_models_that_differ_are_not_equal(one, other):
    """Models differ if a field, an unknown field, or the value received for a broken field differs."""
    assert one != other


def test_absent_and_null_are_equal_where_both_read_as_none():
    """An absent optional field equals a null one; both are encoded as received."""
    null = codec.structure(
        Webhook, {"id": "wh_1", "url": "https://me.example/in", "description": None}
    )

    assert null == HOOK
    assert hash(null) == hash(HOOK)
    assert "description" in codec.unstructure(null)
    assert "description" not in codec.unstructure(HOOK)


def test_meta_is_outside_equality_and_repr():
    """Models with different ``meta`` are equal."""
    with_meta = codec.with_meta(
        codec.structure(Webhook, codec.unstructure(HOOK)), Meta(message="said")
    )

    assert with_meta == HOOK
    assert "said" not in repr(with_meta)
    assert with_meta.meta == Meta(message="said")
    assert HOOK.meta is None


def test_model_with_free_form_fields_is_not_hashable():
    """A free-form object is a plain dict, so a model that contains one cannot be hashed."""
    with pytest.raises(TypeError, match="unhashable"):
        hash(Customer(metadata={}))


def test_secret_is_never_shown():
    """A webhook's secret can be read but is not in its repr, even if it has the wrong type."""
    hook = Webhook(id="wh_1", secret="whsec_hidden")
    broken = codec.structure(Webhook, {"id": "wh_1", "secret": ["whsec_hidden"]})

    assert hook.secret == "whsec_hidden"
    assert repr(hook) == "Webhook(id='wh_1')"
    assert "hidden" not in repr(broken) + str(broken.problems) + repr(broken.problems)


@pytest.mark.parametrize("name", ["id", "meta", "extra", "_rest"])
def test_model_refuses_assignment(name):
    """Models are frozen, whether decoded or built."""
    decoded = codec.decode(Webhook, b'{"id": "wh_1", "new": 1}')

    for hook in (HOOK, decoded):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(hook, name, None)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        del decoded.id


UNKNOWN_WITHIN = b'{"uuid": "U", "client": {"id": "c", "new": 1.10}, "items": [{"new": {"deep": 2}}], "old": null}'


@pytest.mark.parametrize(
    "model",
    [HOOK, BROKEN, Customer(metadata={"a": 1}), codec.decode(Invoice, UNKNOWN_WITHIN),
     codec.structure(Invoice, [1]), codec.with_meta(Webhook(id="x"), Meta(message="m")),
     codec.structure(Invoice, {"folio_number": Decimal("3.0")})],
)  # fmt: skip
@pytest.mark.parametrize(
    "copied",
    [lambda it: pickle.loads(pickle.dumps(it)), copy.copy, copy.deepcopy],  # noqa: S301
)
def test_copy_equals_its_original(model, copied):
    """Pickling and copying keep fields, absent fields, problems, unknown fields and meta."""
    made = copied(model)

    assert made == model
    assert made.meta == model.meta
    assert made.extra == model.extra
    assert [str(problem) for problem in made.problems] == [
        str(problem) for problem in model.problems
    ]
    assert repr(codec.unstructure(made)) == repr(codec.unstructure(model))


def test_evolved_model_keeps_gaps_problems_and_unknown_fields():
    """attrs.evolve changes the given fields, and copies absent and broken ones as they are."""
    before = codec.structure(Invoice, {"total": "12.5", "series": "A", "new": 1})

    after = attrs.evolve(before, series="B")

    assert codec.unstructure(after) == {"total": "12.5", "series": "B", "new": 1}
    assert [problem.address for problem in after.problems] == ["$.total"]
    assert (
        attrs.evolve(
            before, total=codec.structure(Invoice, {"total": 1}).total
        ).problems
        == ()
    )


def test_gap_read_by_its_name_in_attrs():
    """Tools that read all fields, as attrs.evolve does, get what the class takes for absent and broken ones."""
    model = codec.structure(Invoice, {"total": "12.5"})

    total, uuid = (
        getattr(model, field.name)
        for field in (attrs.fields(Invoice).total, attrs.fields(Invoice).uuid)
    )

    assert (total.address, uuid) == ("$.total", UNSET)
    with pytest.raises(FieldError):
        getattr(model, "uuid")  # noqa: B009 - the plain name


def test_evolved_model_that_was_no_object_starts_anew():
    """A problem of the whole item is dropped once a field is set."""
    assert codec.unstructure(
        attrs.evolve(codec.structure(Webhook, None), id="wh_2")
    ) == {"id": "wh_2"}


@pytest.mark.skipif(sys.version_info < (3, 13), reason="copy.replace is new in 3.13")
def test_replaced_model_keeps_gaps():
    """copy.replace behaves like attrs.evolve."""
    assert copy.replace(HOOK, id="wh_2") == Webhook(id="wh_2", url=HOOK.url)


def test_unknown_fields_are_kept_where_they_stood():
    """Each object has its own unknown fields, with exact numbers, in a read-only mapping."""
    invoice = codec.decode(Invoice, UNKNOWN_WITHIN)

    assert invoice.extra == {"old": None}
    assert str(invoice.client.extra["new"]) == "1.10"
    assert invoice.items[0].extra == {"new": {"deep": 2}}
    with pytest.raises(TypeError):
        invoice.extra["more"] = 1
    assert HOOK.extra == {}


def test_unset_is_falsy_and_says_what_it_is():
    """UNSET leaves a field out; it is neither None nor true."""
    assert not UNSET
    assert repr(UNSET) == "UNSET"
    assert Webhook(id=UNSET) == Webhook()


def test_page_is_a_sequence_that_lists_its_problems():
    """A page has a length and an iterator, and lists problems by their address in the answer."""
    page = Page(items=(HOOK, BROKEN), next="c", has_more=True)

    assert (len(page), list(page), page[0], page[-1:]) == (
        2,
        [HOOK, BROKEN],
        HOOK,
        (BROKEN,),
    )
    assert [problem.address for problem in page.problems] == [
        "$.data[1].total",
        "$.data[1].client.address.city",
    ]


def test_webhook_list_is_a_sequence():
    """It behaves like a tuple, and shows whether more may be missing."""
    found = models.WebhookList(items=(HOOK,), is_full=True)

    assert (len(found), list(found), found[0], HOOK in found) == (1, [HOOK], HOOK, True)


@pytest.mark.parametrize(
    ("encoded", "content"),
    [("PHhtbC8+", b"<xml/>"), ("PHht\nbC8+\n", b"<xml/>"), ("", b"")],
)
def test_retention_file_gives_its_bytes(encoded, content):
    """The text is decoded as base64, on one line or several."""
    assert RetentionFile(encoded=encoded).content == content


@pytest.mark.parametrize("encoded", ["<xml/>", "PHhtbC8", "é", "PHht*bC8+"])
def test_retention_file_that_is_not_base64_keeps_its_text(encoded):
    """Text that is not base64 raises, and can still be read as received."""
    file = RetentionFile(encoded=encoded)

    with pytest.raises(FileEncodingError, match=r"\.encoded"):
        _ = file.content
    assert file.encoded == encoded
