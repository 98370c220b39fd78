"""`invsvc console`: who may ask, what is confirmed, what each kind of store shows, and the page in a browser."""

from __future__ import annotations

import pytest

from tests.cli.console_scenes import SCENES

pytestmark = pytest.mark.one_python


@pytest.mark.parametrize("name", SCENES)
async def test_scene(name, service, tmp_path):
    """Each guard holds."""
    await SCENES[name](service, tmp_path)
