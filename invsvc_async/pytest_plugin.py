"""Alias of :mod:`invsvc_async.testing.pytest_plugin`, kept for existing configurations."""

import sys

from invsvc_async.testing import pytest_plugin

sys.modules[__name__] = pytest_plugin
