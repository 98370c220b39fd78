"""Resume tokens: what is written is read, and nothing else is."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given, strategies as st

from invsvc_async.errors import InvalidRequestError
from invsvc_async.reads.resume_token import Place, read_token, write_token

texts = st.text(max_size=40)
places = st.builds(
    Place,
    operation=texts,
    query=st.dictionaries(texts, texts, max_size=4),
    team=st.none() | texts,
    service=texts,
    cursor=st.none() | texts,
    page=st.none() | st.integers(1, 2**53),
)


def spelt(fields: object) -> str:
    """Write *fields* as a token would be."""
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")


SOUND = [1, "invoices.egress", {"limit": "5"}, None, "c", None, "5c5c"]


@given(places)
def test_token_read_again(place: Place) -> None:
    """A place comes back as it was, from text that needs no quoting."""
    token = write_token(place)

    assert read_token(token) == place
    assert token.isascii()
    assert token.replace("-", "").replace("_", "").isalnum()


@given(st.text() | st.binary() | st.none() | st.integers())
def test_token_that_is_none(token: object) -> None:
    """Anything else is an error of the caller's, and no other."""
    with pytest.raises(InvalidRequestError, match="token"):
        read_token(token)


@pytest.mark.parametrize(
    "fields",
    [
        [2, *SOUND[1:]],
        [True, *SOUND[1:]],
        SOUND[:6],
        [*SOUND[:6], None],
        SOUND[:5],
        [*SOUND, 1],
        [*SOUND[:2], {"limit": 5}, *SOUND[3:]],
        [*SOUND[:4], 7, None, "5c5c"],
        [*SOUND[:5], 0, "5c5c"],
        [*SOUND[:5], True, "5c5c"],
        [*SOUND[:5], 2**53 + 1, "5c5c"],
        [*SOUND[:3], 7, None, None, "5c5c"],
        [1, None, *SOUND[2:]],
        {"v": 1},
        "text",
    ],
)
def test_token_of_another_make(fields: object) -> None:
    """A wrong version, number or type of field is refused."""
    with pytest.raises(InvalidRequestError, match="token"):
        read_token(spelt(fields))


def test_token_beyond_its_bounds() -> None:
    """A token that is cut, too long or nested deep is refused at once."""
    token = spelt(SOUND)
    assert read_token(token).cursor == "c"
    for broken in (
        token[:-3],
        token + "A" * 32_768,
        base64.urlsafe_b64encode(b"[" * 20_000).decode().rstrip("="),
    ):
        with pytest.raises(InvalidRequestError, match="token"):
            read_token(broken)
