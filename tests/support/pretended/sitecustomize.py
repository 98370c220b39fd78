"""Python imports this at its start, where `PYTHONPATH` has this folder: `INVSVC_SYSTEM` says what to pretend."""

from tests.support import other_systems  # noqa: F401
