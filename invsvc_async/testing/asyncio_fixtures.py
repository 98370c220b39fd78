"""The fixtures declared for pytest-asyncio, one for each loop scope; imported by the plugin only."""

from __future__ import annotations

import pytest_asyncio

from invsvc_async.testing.pytest_plugin import new_fixtures

for _scope in ("function", "class", "module", "package", "session"):
    for _what, _fixture in new_fixtures().items():
        _name = f"_invsvc_{_what}_in_{_scope}"
        globals()[_name] = pytest_asyncio.fixture(loop_scope=_scope, name=_name)(
            _fixture
        )
