"""The plain form of an error, as reports, journals and `--json` have it."""

from __future__ import annotations

import pytest

from invsvc_async import errors
from invsvc_async.reconcile.json_form import error_of, plain_error

ERRORS = [
    errors.NotSentError("no route", operation="webhooks.update"),
    errors.ResponseLostError("reset", operation="webhooks.update"),
    errors.UnreadableResponseError(
        "half a body", operation="webhooks.update", status=200
    ),
    errors.ConfigurationError("the token cannot be fetched"),
    errors.DeadlineExceededError("too late"),
    errors.service_error_class(429)(
        status=429, code="slow_down", message="wait", retry_after=3.0
    ),
    errors.service_error_class(422)(
        status=422,
        code="validation_error",
        details=("url: is missing",),
        own_envelope=True,
    ),
    errors.service_error_class(400)(status=400, details=[{"path": "url"}]),
]
FIELDS = (
    "operation",
    "status",
    "code",
    "message",
    "details",
    "own_envelope",
    "retry_after",
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: f"{type(error).__name__}")
def test_error_and_back(error):
    """Class, text and fields are those of the error."""
    found = error_of(plain_error(error))

    assert (type(found), str(found)) == (type(error), str(error))
    assert [getattr(found, name, None) for name in FIELDS] == [
        getattr(error, name, None) for name in FIELDS
    ]


def test_details_with_a_secret():
    """A secret in the details of an answer is left out."""
    error = errors.service_error_class(400)(
        status=400, details={"secret": "whsec_a", "url": "x"}
    )

    assert plain_error(error)["details"] == {"url": "x"}


@pytest.mark.parametrize("plain", [None, "text", 3])
def test_what_is_not_an_error(plain):
    """It is ignored, because the rest of an outcome can be read."""
    assert error_of(plain) is None


def test_error_of_a_newer_version():
    """A class that this version does not have is its base class."""
    found = error_of({"type": "NewError", "text": "what it says"})

    assert (type(found), str(found)) == (errors.InvsvcError, "what it says")
