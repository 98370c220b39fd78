"""The service and the client of the batches' tests."""

from __future__ import annotations

from hypothesis import Phase, settings

from tests.batch.conftest import client  # noqa: F401 - pytest finds it by name

# For mutants: that an example fails is enough, however long it is.
settings.register_profile("mutants", phases=(Phase.explicit, Phase.reuse, Phase.generate))
