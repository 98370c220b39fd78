"""Each test runs with both ways to send."""

from tests.support.senders import sender  # noqa: F401 - a fixture
