"""
Copy the example files into the pages that show them: ``python docs/copy_examples.py``.

The name of the file follows the language of its block, as in ``python examples/shop.py``.  So the pages can
be read without a build.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^(```\w+ (examples/\S+)\n).*?^(```)$", re.MULTILINE | re.DOTALL)


def with_examples(text: str) -> str:
    """Return the text of a page with the present content of each example file that it shows."""
    return _BLOCK.sub(
        lambda found: (
            f"{found[1]}{(ROOT / found[2]).read_text(encoding='utf-8')}{found[3]}"
        ),
        text,
    )


def main() -> None:
    """Rewrite the pages whose examples have changed, and print their names."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if with_examples(text) != text:
            page.write_text(with_examples(text), encoding="utf-8")
            sys.stdout.write(f"{page.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
