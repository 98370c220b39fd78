"""What stands on the pages is true: every Python block runs, and prints what the page shows."""

from __future__ import annotations

import pytest

from tests.docs.pages import PAGES, ROOT, run_page

pytestmark = [pytest.mark.untraced, pytest.mark.usefixtures("root_logger_restored")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_of_page(page, capsys, tmp_path, monkeypatch) -> None:
    """The page's blocks run one after the other, and print the text that follows them."""
    monkeypatch.chdir(tmp_path)

    run_page(page, capsys, monkeypatch)
