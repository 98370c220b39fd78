"""What the processes of a walk leave is collected where it is expected, and not in a later test."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True)
def _collected():
    yield
    gc.collect()
