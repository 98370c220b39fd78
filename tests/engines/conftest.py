"""What the tests of engines share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def patch():
    """Yield changes of the environment that last as long as the engine of a file runs."""
    with pytest.MonkeyPatch.context() as context:
        yield context
