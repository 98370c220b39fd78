"""What would send a second time if it were copied."""

from __future__ import annotations

import copy
import pickle

import pytest

from invsvc_async import Outbox
from invsvc_async.batch import Batch
from tests.batch.conftest import HOOK

MADE = {
    "write": lambda client, _folder: client.webhooks.create(**HOOK),
    "keyed write": lambda client, _folder: client.webhooks.create(**HOOK).keyed("k"),
    "batch": lambda client, folder: Batch.open(folder / "run.db", client),
    "outbox": lambda client, folder: Outbox.open(folder / "app.db", client),
}


@pytest.mark.parametrize(
    "way", [copy.copy, copy.deepcopy, pickle.dumps], ids=lambda way: way.__name__
)
@pytest.mark.parametrize("kind", MADE)
async def test_copy_is_refused(service, client, tmp_path, kind, way):
    """In words that say what to do; the object can still be used."""
    made = MADE[kind](client, tmp_path)
    with pytest.raises(
        TypeError,
        match=r"cannot be copied or pickled\. Both would (be sent|send its writes)\. ",
    ):
        way(made)

    if kind == "write":
        await made
        assert service.arrivals("webhooks.create") == 1
        with pytest.raises(TypeError, match="cannot be copied"):
            way(made)
    elif "write" in kind:
        made.close()
