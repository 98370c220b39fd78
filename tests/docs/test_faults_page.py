"""The page of the embedded service has each word of its faults, and no other."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from invsvc_async.simulator import Faults, faults
from invsvc_async.simulator.faults import WORDS, parse_step
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/reference/simulator.md").read_text()


def first_column(head):
    """Return what is marked as code in the first column of the table below *head*."""
    table = PAGE.partition(f"| {head} |")[2].partition("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    return [word for cell in cells for word in re.findall("`([^`]+)`", cell)]


def shape_of(words):
    """Return what the parser tells of *words*, but for its numbers."""
    step = parse_step(words)
    return step.end, step.variant, step.number is not None


def words_of_the_parser():
    """Return each form in the parser's own message, with numbers in it."""
    text = WORDS.partition("one of: ")[2].replace("for reads also: ", "")
    for form in re.split("[,;] ", text.replace("a status of 400 to 599", "500")):
        named = form.replace("SECONDS", "2").replace("STATUS", "503")
        yield named.replace(" [2]", "")
        if "[" in named:
            yield named.replace("[", "").replace("]", "")


def test_ends_of_the_page() -> None:
    """They are those of the parser's message, and each name that the parser has is among them."""
    ends = first_column("End")
    assert {*map(shape_of, ends)} == {*map(shape_of, words_of_the_parser())}
    # reaches: the forms themselves, so that a new one is not forgotten in the message either
    forms = [form.pattern for form in faults._ENDS]
    named = {
        name
        for form in forms
        for group in re.findall(r"\(\?P<end>([^)]*)\)", form)
        for name in group.split("|")
    }
    assert named - {"head then close"} == {parse_step(end).end for end in ends} - {
        "status"
    }


@pytest.mark.parametrize(
    ("beginning", "effect"), [("apply, then", "now"), ("late 0.5, then", "late")]
)
def test_effects_of_the_page(beginning, effect) -> None:
    """Each beginning gives the effect that stands beside it."""
    assert beginning in first_column("Before the end")
    assert parse_step(f"{beginning} reset").effect == effect


def test_plan_of_the_page() -> None:
    """It is one, and its names are the fields, and one other."""
    [plan] = re.findall("`(rate=[^`]*kinds=[^`]*)`", PAGE)
    assert Faults.parse(plan) == Faults(rate=0.2, kinds=("500", "reset"))
    names = {field.name for field in fields(Faults)} | {"late"}
    with pytest.raises(ValueError, match="is not among") as caught:
        Faults.parse("x=1")
    assert str(caught.value).endswith(", ".join(sorted(names)))
