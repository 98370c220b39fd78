"""What the scenes assert is shown in full when it fails; they are imported after this file."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.audit.scenes")
