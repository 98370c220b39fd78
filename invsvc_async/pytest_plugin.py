"""The pytest plugin by its public name; it is :mod:`invsvc_async.testing.pytest_plugin`."""

import sys

from invsvc_async.testing import pytest_plugin

sys.modules[__name__] = pytest_plugin
