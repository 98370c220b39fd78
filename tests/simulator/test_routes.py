"""The simulator's routes and the client's table, written separately, agree."""

import pytest

from invsvc_async.api import operations
from invsvc_async.simulator import routes

pytestmark = pytest.mark.one_python


def test_routes_are_those_of_the_table():
    """Every operation with a path has a route with the same name, method and path, and there are no others."""
    table = {(row.name, row.method, row.path) for row in operations.TABLE if row.path}
    assert set(routes()) == table
