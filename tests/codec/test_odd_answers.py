"""Answers, values and files that are not as they should be."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum

import pytest

from invsvc_async import ApiKey, Client
from invsvc_async.codec import envelope, unstructure
from invsvc_async.codec.decoder import many, one
from invsvc_async.codec.exact_json import salvage
from invsvc_async.errors import (
    ConfigurationError,
    InvalidRequestError,
    UnreadableResponseError,
)
from invsvc_async.export.files import ExportError, TextSink
from invsvc_async.export.parquet import Columns, ParquetSink
from invsvc_async.export.walk import _sink
from invsvc_async.models import Invoice, Webhook
from invsvc_async.profiles import profile_of, settings_of
from invsvc_async.reads.filter_check import first_mismatch

EMPTY = envelope.Envelope(raw=None, content=b'{"success":true}')


@pytest.mark.parametrize(
    ("read", "what"), [(one, "no Webhook"), (many, "no list of Webhook")]
)
def test_answer_without_a_payload(read, what):
    """It is rejected, with the whole body attached."""
    with pytest.raises(UnreadableResponseError, match=what) as refused:
        read(Webhook, EMPTY)
    assert refused.value.raw == EMPTY.content


def test_enum_of_the_callers_own_in_a_value():
    """It is encoded as its value."""

    class Colour(StrEnum):
        RED = "red"

    assert unstructure({"colour": Colour.RED}) == {"colour": "red"}


def test_value_that_is_broken_below_the_depth_that_is_searched():
    """Members are decoded down to that depth; deeper ones stay bytes."""
    broken = b'{"a":1,"b":{"c":"\xff","d":2}}'
    saved = salvage(broken)
    assert (saved["a"], saved["b"]["d"]) == (1, 2)
    assert isinstance(salvage(broken, 1)["b"], envelope.Raw)
    assert isinstance(salvage(broken, 0), envelope.Raw)


@pytest.mark.parametrize(
    ("value", "whole"),
    [
        (Decimal("7.0"), 7),
        (Decimal("7.5"), None),
        (Decimal("1e99"), None),
        (7.0, 7),
        ("7", None),
    ],
)
def test_count_in_an_odd_form(value, whole):
    """A whole number is recognised in every notation; nothing else is converted."""
    assert envelope._whole(value) == whole


def test_metadata_filter_with_a_path():
    """A key with a dot may be a path into nested metadata: no item is said to break such a filter."""
    item = Invoice(uuid="U", metadata={"a": "x"})
    assert first_mismatch([item], {"metadata.a.b": "y"}) is None
    assert (
        first_mismatch([item], {"metadata.a": "y"})
        == "item 0 does not match metadata.a=y"
    )


def test_file_without_a_default_profile(tmp_path):
    """It says nothing where no profile is asked for."""
    path = tmp_path / "invsvc.toml"
    path.write_text('[profiles.live]\nbase_url = "https://h.example/v2"\n')
    asked = {"INVSVC_CONFIG": str(path)}
    assert settings_of(asked, profile_of(asked, None)) == {}
    assert settings_of(asked, profile_of(asked, "live")) == {
        "base_url": "https://h.example/v2"
    }
    with pytest.raises(ConfigurationError, match=r"has no profile 'test'.*: live"):
        profile_of(asked, "test")


@pytest.mark.parametrize(("precision", "scale"), [(39, 2), (4, 5), (4, -1)])
def test_decimals_that_no_column_holds(tmp_path, precision, scale):
    """They are refused before a file is begun."""
    with pytest.raises(ConfigurationError, match="scale <= precision <= 38"):
        _sink(
            tmp_path / "a.parquet", "parquet", precision, scale, escape_formulas=False
        )
    assert list(tmp_path.iterdir()) == []


def test_export_gone_on_with_whose_file_is_gone(tmp_path):
    """Neither a text file that is shorter than it was left, nor a lost part, is gone on with."""
    with pytest.raises(ExportError, match="missing or truncated"):
        TextSink(tmp_path / "a.csv", "csv").open(10)
    with pytest.raises(ExportError, match="parts are missing"):
        ParquetSink(tmp_path / "a.parquet", Columns(Invoice, 38, 9)).open(2)


def test_number_that_no_column_holds():
    """An integer beyond 64 bits is refused with the way out, and so is a decimal that would be rounded."""
    columns = Columns(Invoice, 10, 2)
    with pytest.raises(
        ExportError, match=r"does not fit 64 bits. Export as jsonl or csv"
    ):
        columns.table([Invoice(uuid="U", folio_number=2**70)])
    with pytest.raises(ExportError, match="without rounding"):
        columns.table([Invoice(uuid="U", total=Decimal("1.234"))])


def test_journey_whose_node_has_a_number_for_a_name():
    """The error names its type."""
    client = Client("http://127.0.0.1:1/v2", ApiKey("abc"))
    node = {"id": 5, "type": "t", "position": {"x": 0, "y": 0}, "data": {}}
    with pytest.raises(InvalidRequestError, match=r"nodes\[0\].id: is .*, not text"):
        client.journeys.update("jrn_1", graph={"nodes": [node], "edges": []})
