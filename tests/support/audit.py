"""
Look the installed versions up among known vulnerabilities; say so, and skip, where nobody could be asked.

    python -m tests.support.audit

Must never pass but for one reason: versions were looked up, and nothing was found.  Exit codes: 0 passed,
1 failed, 75 nothing was looked up.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

COMMAND = (
    sys.executable, "-m", "pip_audit", "--progress-spinner", "off", "--skip-editable", "--format", "json"
)  # fmt: skip
SKIPPED = 75  # sysexits' "try again later"
NO_NETWORK = (
    "ConnectionError", "ConnectTimeout", "Max retries exceeded", "NameResolutionError", "Network is unreachable",
    "ProxyError", "ReadTimeout", "Temporary failure in name resolution",
)  # fmt: skip


def judged(code: int, printed: str, complained: str) -> tuple[int, str]:
    """Return exit code and words for the result of pip-audit: what it lists counts, not its exit code."""
    try:
        listed: list[dict[str, Any]] = json.loads(printed)["dependencies"]
    except (ValueError, KeyError, TypeError):
        if any(word in complained for word in NO_NETWORK):
            return SKIPPED, "SKIPPED: there is no network, so nobody could be asked"
        return 1, f"FAIL: pip-audit did not come to an end: {complained[-1000:]}"
    found = [
        f"{each['name']} {each['version']}: {_ids(each)}"
        for each in listed
        if each.get("vulns")
    ]
    left = [each["name"] for each in listed if "skip_reason" in each]
    asked = len(listed) - len(left)
    if found:
        return 1, "\n".join(
            [*found, f"FAIL: {len(found)} of {asked} have known vulnerabilities"]
        )
    if not asked:
        return (
            SKIPPED,
            f"SKIPPED: the index knows none of the {len(left)} that are installed: nothing was audited",
        )
    if code:
        return 1, f"FAIL: pip-audit ended with {code}: {complained[-1000:]}"
    return (
        0,
        f"PASS: {asked} looked up, no known vulnerability; not looked up: {', '.join(left) or 'none'}",
    )


def _ids(each: dict[str, Any]) -> str:
    return ", ".join(
        f"{one['id']} (mended in {', '.join(one['fix_versions']) or 'none'})"
        for one in each["vulns"]
    )


def main() -> None:
    ran = subprocess.run(COMMAND, capture_output=True, text=True, check=False)  # noqa: S603 - fixed arguments
    code, words = judged(ran.returncode, ran.stdout, ran.stderr)
    sys.stdout.write(words + "\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
