"""The listed changes that no test notices are changes of text that the package still has."""

import pytest

from tests.mutants.__main__ import PACKAGE, ROOT, _listed

pytestmark = pytest.mark.one_python


@pytest.mark.parametrize(
    "survivor", _listed(), ids=lambda each: f"{each['file']}: {each['was'][:40]}"
)
def test_text_is_in_its_file(survivor):
    """Otherwise the reason is about something that was rewritten."""
    text = (ROOT / PACKAGE / survivor["file"]).read_text(encoding="utf-8")

    assert " ".join(survivor["was"].split()) in " ".join(text.split())
    assert survivor["was"] != survivor["now"]
