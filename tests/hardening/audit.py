"""
Look the installed versions up among known vulnerabilities; where there is no network, say so and pass.

    python -m tests.hardening.audit

Must never pass for any other reason than that nothing was found, or that nobody could be asked.
"""

from __future__ import annotations

import subprocess
import sys

COMMAND = (sys.executable, "-m", "pip_audit", "--progress-spinner", "off", "--skip-editable")
NO_NETWORK = (
    "ConnectionError", "ConnectTimeout", "Max retries exceeded", "NameResolutionError", "Network is unreachable",
    "ProxyError", "ReadTimeout", "Temporary failure in name resolution",
)  # fmt: skip


def judged(code: int, said: str) -> tuple[int, str]:
    """Give exit code and words for how pip-audit ended: one code of its stands for findings and failures."""
    if code == 0:
        return 0, "PASS: no known vulnerability in what is installed"
    if "known vulnerabilit" in said:
        return 1, "FAIL: there are known vulnerabilities in what is installed"
    if any(word in said for word in NO_NETWORK):
        return 0, "SKIPPED: there is no network, so nobody could be asked"
    return 1, "FAIL: pip-audit did not come to an end"


def main() -> None:
    ran = subprocess.run(COMMAND, capture_output=True, text=True, check=False)  # noqa: S603 - fixed arguments
    code, words = judged(ran.returncode, ran.stdout + ran.stderr)
    sys.stdout.write(f"{ran.stdout}{ran.stderr if code else ''}{words}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
