"""Intents and rows of journals, whole and damaged: there and back, or refused in our own words."""

from __future__ import annotations

import json
from contextlib import suppress

import attrs
import pytest
from hypothesis import given, strategies as st

from invsvc_async import Intent, InvalidRequestError, JournalError
from invsvc_async.batch.result import Result
from invsvc_async.durable.entry import ENTRY, columns_of, entry_in
from invsvc_async.durable.intents import Commons, Packed, pack, unpack
from tests.support.fuzzing import FIELDS, as_wire, fuzzed, intents, spoilt, texts

pytestmark = [pytest.mark.fuzz, pytest.mark.untraced]


@fuzzed
@given(made=st.lists(intents(), min_size=1, max_size=3))
def test_intents_there_and_back(made):
    """No field is lost in JSON, nor in the short form of journals, though several intents share common parts."""
    commons, reopened = Commons(), Commons()
    stored = [(each.key, pack(each, commons)) for each in made]
    reopened.texts.update(commons.texts)

    assert [unpack(key, packed, reopened) for key, packed in stored] == made
    for each in made:
        assert as_wire(Intent.from_json(each.to_json())) == as_wire(each)


def test_every_field_is_tried():
    """A field that is added to intents has its values here too."""
    assert {*FIELDS, "operation", "path", "body", "has_body"} == {
        each.name for each in attrs.fields(Intent)
    }


@fuzzed
@given(seen=st.data())
def test_intent_of_any_bytes(seen):
    """A damaged or foreign intent is an InvalidRequestError, or an intent that can be kept again."""
    content = seen.draw(spoilt(json.loads(seen.draw(intents()).to_json())))
    with suppress(InvalidRequestError):
        intent = Intent.from_json(content)
        as_wire(Intent.from_json(intent.to_json()))


@fuzzed
@given(seen=st.data())
def test_row_of_a_journal_of_any_bytes(seen):
    """A damaged row is a JournalError, or an intent."""
    commons = Commons()
    packed = pack(seen.draw(intents()), commons)
    whose = seen.draw(st.sampled_from(["row", "common"]))
    if whose == "row":
        text = seen.draw(spoilt(json.loads(packed.text))).decode(errors="replace")
        packed = Packed(
            common=seen.draw(st.sampled_from([packed.common, 99])), text=text
        )
    else:
        commons.texts[packed.common] = seen.draw(
            spoilt(json.loads(commons.texts[packed.common]))
        ).decode(errors="replace")
    with suppress(JournalError):
        as_wire(unpack("row-1", packed, commons))


COLUMNS = {
    "seq": 1, "key": "row-1", "place": 1, "lane": 1, "thing": None, "digest": "d", "state": 2, "operation": "webhooks.delete",
    "verdict": "applied", "common": 1, "intent": None, "outcome": '{"basis":"answered","tries":2}', "claim": None,
    "done_at": 1750000000000,
}  # fmt: skip
stored = (
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | texts
    | st.binary(max_size=12)
)


@fuzzed
@given(seen=st.data())
def test_whole_row_of_a_journal(seen):
    """Whatever its columns contain, a row is a JournalError, or an entry that can be stored again."""
    row = {
        **COLUMNS,
        **seen.draw(
            st.dictionaries(st.sampled_from(sorted(COLUMNS)), stored, max_size=2)
        ),
    }
    if seen.draw(st.booleans()):
        row["outcome"] = seen.draw(spoilt(json.loads(COLUMNS["outcome"]))).decode(
            errors="replace"
        )
    with suppress(JournalError):
        entry = entry_in([row[name.removeprefix("e.")] for name in ENTRY.split(", ")])
        columns_of(entry)
        Result.of(entry)
