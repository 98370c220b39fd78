"""What the end of pip-audit means."""

import json

import pytest

from tests.support.audit import SKIPPED, judged

pytestmark = pytest.mark.untraced

SOUND = {"name": "attrs", "version": "25.1.0", "vulns": []}
HOLED = {
    "name": "aiohttp",
    "version": "3.8.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.8.1"]}],
}
UNKNOWN = {"name": "invsvc-async", "skip_reason": "Dependency not found on PyPI"}
CUT_OFF = (
    "requests.exceptions.ConnectionError: HTTPSConnectionPool: Max retries exceeded"
)


def listing(*dependencies):
    return json.dumps({"dependencies": dependencies, "fixes": []})


@pytest.mark.parametrize(
    ("code", "printed", "complained", "ended", "words"),
    [
        (0, listing(SOUND, UNKNOWN), "", 0, "PASS: 1 looked up, no known vulnerability; not looked up: invsvc-async"),
        (1, listing(SOUND, HOLED), "", 1, "aiohttp 3.8.0: PYSEC-1 (mended in 3.8.1)\nFAIL: 1 of 2 have"),
        (1, listing(HOLED), CUT_OFF, 1, "aiohttp 3.8.0"),
        (0, listing(UNKNOWN, UNKNOWN), "", SKIPPED, "SKIPPED: the index knows none of the 2"),
        (0, listing(), "", SKIPPED, "SKIPPED: the index knows none"),
        (1, "", CUT_OFF, SKIPPED, "SKIPPED: there is no network"),
        (1, "", "No module named pip_audit", 1, "FAIL: pip-audit did not"),
        (2, "usage: pip-audit", "", 1, "FAIL: pip-audit did not"),
        (1, listing(SOUND), "a reason", 1, "FAIL: pip-audit ended with 1: a reason"),
    ],
    ids=["clean", "holed", "holed, then cut off", "unknown", "empty", "no network", "missing", "misused", "broken"],
)  # fmt: skip
def test_audit_that_ended(code, printed, complained, ended, words):
    """It passes only where something was looked up; where nothing was, it is skipped in words."""
    status, told = judged(code, printed, complained)

    assert status == ended
    assert told.startswith(words)
