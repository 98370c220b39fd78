"""Comparison of wire data with the semantics of the service."""

from __future__ import annotations

from decimal import Decimal

import pytest

from invsvc_async.reconcile.compare import (
    names_another,
    normal_url,
    rounded,
    same,
    same_hook_field,
    same_journey_field,
    tidied,
    url_key,
)
from invsvc_async.reconcile.history import Verdict
from invsvc_async.reconcile.kinds import KINDS
from invsvc_async.settings import ReconcilePolicy


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0), (1, Decimal(1)), (0.1, Decimal("0.1")), (Decimal("1.0"), Decimal("1.00")), (None, None), ("a", "a"),
        (True, True), ({"a": 1, "b": [2]}, {"b": [2.0], "a": 1}), ([1, (2,)], (1, [2])), ({}, {}), ([], ()),
        (10**30, Decimal(10**30)),
    ],
)  # fmt: skip
def test_same(one, other):
    """Numbers are compared by value, objects without order, lists with order."""
    assert same(one, other)
    assert same(other, one)


def test_texts_of_other_classes():
    """A member of an enumeration equals its text."""
    assert same(Verdict.APPLIED, "applied")
    assert same("applied", Verdict.APPLIED)
    assert not same(Verdict.APPLIED, "unknown")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True), (0, False), (1, 2), (True, False), ("1", 1), (None, 0), (None, ""), (None, False), ({"a": None}, {}), ([1, 2], [2, 1]),
        ([1], [1, 1]), ({"a": 1}, {"a": 2}), ({"a": 1}, {"b": 1}), (0.1, Decimal("0.10000000000000001")), ({}, []), (10**30, 10**30 + 1),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}), ([True], [1]),
    ],
)  # fmt: skip
def test_not_same(one, other):
    """A boolean is not a number, null equals only null, and every digit counts."""
    assert not same(one, other)
    assert not same(other, one)


@pytest.mark.parametrize(
    ("exact", "as_double"),
    [
        (12345678901234567890, 12345678901234567000),
        (12345678901234567890, Decimal("1.2345678901234567E+19")),
        ({"a": [Decimal("0.1234567890123456789")]}, {"a": [0.12345678901234568]}),
        (True, True),
        (10**400, 10**400),
        (Decimal("1E+400"), Decimal("1E+400")),
        ("1", "1"),
    ],
)
def test_rounded(exact, as_double):
    """Numbers are as in a service that keeps doubles; those that no double can hold are unchanged."""
    assert same(rounded(exact), rounded(as_double))
    assert not same(rounded([10**400]), rounded([2 * 10**400]))


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (" a\n", "a"),
        ({"a": " ", "b": [{"c": {}}]}, {"b": [None]}),
        ({"a": {"b": {"c": None}}}, None),
        ([12345678901234567890], [12345678901234567000]),
    ],
)
def test_tidied(sent, kept):
    """Texts are trimmed, and empty members are left out; items of a list, false and 0 are not."""
    assert same(tidied(sent), tidied(kept))
    assert tidied({"a": False, "b": 0, "c": []}) == {"a": False, "b": 0, "c": []}


NODE = {"id": "n", "type": "t", "position": {"x": 0, "y": 1}, "data": {"config": None}}
GRAPH = {
    "nodes": [NODE],
    "edges": [{"id": "e", "source": "a", "target": "b", "sourceHandle": None}],
    "viewport": None,
}


def changed(graph, part, **changes):
    return {**graph, part: [{**graph[part][0], **changes}]}


def test_graph_with_its_nulls_left_out():
    """viewport, sourceHandle and config may be null or absent."""
    bare = {
        "nodes": [{**NODE, "data": {}}],
        "edges": [{"id": "e", "source": "a", "target": "b"}],
    }
    assert same_journey_field("graph", GRAPH, bare)
    assert same_journey_field("graph", {"viewport": None, **bare}, bare)
    assert same_journey_field("graph", bare, GRAPH)


@pytest.mark.parametrize(
    "other",
    [
        {**GRAPH, "viewport": {"x": 0, "y": 0, "zoom": 1}},
        changed(GRAPH, "edges", sourceHandle="h"),
        changed(GRAPH, "nodes", data={"config": {"a": None}}),
        changed(GRAPH, "nodes", position={"x": 0, "y": None}),
        changed(GRAPH, "nodes", type=None),
        changed(GRAPH, "edges", source=None),
        {**GRAPH, "nodes": None},
        {**GRAPH, "nodes": []},
        None,
        [],
    ],
)
def test_graphs_that_differ(other):
    """Null equals absent only where the specification allows null."""
    assert not same_journey_field("graph", GRAPH, other)
    assert not same_journey_field("graph", other, GRAPH)


def test_free_form_config_is_compared_as_it_is():
    """Inside a node's config, null is a value."""
    with_null = changed(GRAPH, "nodes", data={"config": {"a": None}})
    assert same_journey_field(
        "graph", with_null, changed(GRAPH, "nodes", data={"config": {"a": None}})
    )
    assert not same_journey_field(
        "graph", with_null, changed(GRAPH, "nodes", data={"config": {}})
    )


@pytest.mark.parametrize(
    ("spelt", "normal"),
    [
        ("HTTPS://Me.Example", "https://me.example/"),
        ("https://me.example:443/In", "https://me.example/In"),
        ("http://me.example:80", "http://me.example/"),
        ("http://me.example:443/", "http://me.example:443/"),
        ("https://me.example:8443/x?b=2&a=1#f", "https://me.example:8443/x?b=2&a=1#f"),
        (" https://me.example./ ", "https://me.example/"),
        ("https://u:p@Me.example/x", "https://u:p@me.example/x"),
        ("https://[::1]:443/x", "https://[::1]/x"),
        ("https://[::1]:8443/x", "https://[::1]:8443/x"),
        ("https://me.example:port/", "https://me.example:port/"),
        ("https://[broken", "https://[broken"),
        ("/in", "/in"),
        ("https://me.example/a/./b/../c", "https://me.example/a/c"),
        ("https://me.example/a/b/..", "https://me.example/a/"),
        ("https://me.example/../../a/.", "https://me.example/a/"),
        ("https://Bücher.example/in", "https://xn--bcher-kva.example/in"),
        ("https://straße.example/in", "https://xn--strae-oqa.example/in"),
        ("https://ü..example/in", "https://ü..example/in"),
        (
            "https://me.example/%7Ea b/%c3%bc/ü",
            "https://me.example/~a%20b/%C3%BC/%C3%BC",
        ),
        (
            'https://me.example/{a}|"b"?q={c}',
            "https://me.example/%7Ba%7D%7C%22b%22?q=%7Bc%7D",
        ),
        ("https://me.example/?q=%27x%27&r=(%28)", "https://me.example/?q='x'&r=(()"),
        ("https://me.example/a[1]/%5B2%5D", "https://me.example/a%5B1%5D/%5B2%5D"),
        ("https://me.example/a\\b?c\\d", "https://me.example/a/b?c%5Cd"),
        ("https://u:@me.example/", "https://u@me.example/"),
        ("https://@me.example/", "https://me.example/"),
        ("https://u:a;b=c%3a%40@me.example/", "https://u:a%3Bb%3Dc%3A%40@me.example/"),
        ("https://[0:0::1]/x", "https://[::1]/x"),
        ("https://[::1%25eth0]/x", "https://[::1%25eth0]/x"),
    ],
)
def test_normal_url(spelt, normal):
    """Two forms of one URL become equal; a URL that cannot be parsed is unchanged."""
    assert normal_url(spelt) == normal
    assert normal_url(normal) == normal


HOOK = {
    "url": "https://me.example",
    "events": ["a", "b"],
    "description": None,
    "status": "active",
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"url": "https://ME.example/"},
        {"events": ["b", "a"]},
        {"events": ("b", "a", "a")},
        {"description": ""},
        {"id": "wh_1"},
    ],
)
def test_same_hook(changes):
    """Events are a set, an absent description is an empty one, and other fields are ignored."""
    assert KINDS["update of a webhook"].thing.same(HOOK, {**HOOK, **changes})


@pytest.mark.parametrize(
    "changes",
    [{"url": "https://other.example"}, {"url": 5}, {"events": ["a"]}, {"events": None}, {"events": "ab"}, {"description": "x"}, {"status": "inactive"}, {"status": None}],
)  # fmt: skip
def test_other_hook(changes):
    """Webhooks differ if any of the four fields differs."""
    assert not KINDS["update of a webhook"].thing.same(HOOK, {**HOOK, **changes})
    assert not KINDS["update of a webhook"].thing.same({**HOOK, **changes}, HOOK)


def test_hook_fields_of_other_types_are_compared_plainly():
    """A field of the wrong type equals only itself."""
    assert same_hook_field("url", 5, 5)
    assert same_hook_field("events", None, None)
    assert not same_hook_field("events", ["a"], None)
    assert not same_hook_field("description", "0", 0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://Me.example/in#part", "http://me.example:80/in/"),
        ("https://u:p@me.example/a%20b?c=d%20e", "https://me.example/A+b?C=d+E"),
        ("https://straße.example", "https://xn--strae-oqa.example/"),
        ("https://straße.example:8443/", "https://strasse.example:8443"),
        ("https://me.example/in?", "https://me.example/%69n"),
        ("https://[bad]/in#part", "https://[bad]/in"),
        ("http://[#", "http://["),
        (
            "https://me.example\uff03@b.example/#x",
            "https://me.example\uff03@b.example/",
        ),
        ("https://xn--.example/", "https://XN--.example"),
    ],
)
def test_url_key(one, other):
    """What a service may drop or respell does not count; what is no URL has a key too, in ASCII."""
    assert url_key(one) == url_key(other)
    assert url_key(one).isascii()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://me.example/in", "https://me.example/in2"), ("https://me.example/in", "https://me.example/in?a"),
        ("https://me.example/", "https://you.example/"), ("https://me.example/", "https://me.example:8443/"),
        ("https://me.example/?u=https://a.example/", "https://me.example/?u=https://b.example/"), ("/in", "/out"),
    ],
)  # fmt: skip
def test_url_key_of_another_url(one, other):
    """Another host, port, path or query is another URL."""
    assert url_key(one) != url_key(other)


@pytest.mark.parametrize(
    ("shown", "asked", "another"),
    [
        ("jrn_1", "jrn_1", False),
        ("jrn_2", "jrn_1", True),
        (
            "d48fe6e4-e7c8-476e-97c3-d5a1c30ca075",
            "D48FE6E4E7C8476E97C3D5A1C30CA075",
            False,
        ),
        (None, "jrn_1", False),
        (7, "jrn_1", False),
    ],
)
def test_id_in_an_answer(shown, asked, another):
    """It is another one's unless it is the same, in any spelling; one that is no text says nothing."""
    assert names_another(shown, {"id": asked}) is another
    assert not names_another(shown, {})


def test_states_that_are_no_objects():
    """What is no object is like no create, and may hide a draft."""
    hides = KINDS["update of a journey"].thing.hides

    assert KINDS["create of a webhook"].alike(None) is None
    assert hides is not None
    assert hides(ReconcilePolicy(), None)
    assert not hides(ReconcilePolicy(journey_reads_show_drafts=True), None)
