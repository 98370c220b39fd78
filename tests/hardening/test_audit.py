"""What the end of pip-audit means."""

from __future__ import annotations

import pytest

from tests.hardening.audit import judged


@pytest.mark.parametrize(
    ("code", "said", "passes", "words"),
    [
        (0, "No known vulnerabilities found", True, "PASS"),
        (1, "Found 2 known vulnerabilities in 1 package", False, "FAIL: there are"),
        (1, "Found 1 known vulnerability in 1 package\nConnectionError", False, "FAIL: there are"),
        (
            1,
            "requests.exceptions.ConnectionError: HTTPSConnectionPool: Max retries exceeded",
            True,
            "SKIPPED",
        ),
        (1, "No module named pip_audit", False, "FAIL: pip-audit did not"),
        (2, "usage: pip-audit", False, "FAIL: pip-audit did not"),
    ],
    ids=["clean", "two", "one, then cut off", "no network", "not installed", "misused"],
)
def test_audit_that_ended(code, said, passes, words):
    """Only a clean bill, or nobody to ask, passes; and the latter is said in words."""
    status, told = judged(code, said)

    assert (status == 0, told.startswith(words)) == (passes, True)
