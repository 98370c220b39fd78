"""What a run keeps, and what it must not keep, when it is awaited again or ends between two steps."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from invsvc_async import Verdict
from invsvc_async.client import options_of
from invsvc_async.reconcile.history import Attempt, End, Send
from invsvc_async.writes.run_record import RunRecord
from invsvc_async.writes.things import Thing
from invsvc_async.writes.write import Write
from tests.batch.conftest import client_of
from tests.support.waiting import cancel


def test_mark_of_a_send_that_has_ended():
    """It stays void, though the history is the one before that send again."""
    record = RunRecord(None, lambda: None, False)
    record.mark(Send(attempt_timeout=1.0), 1.0)
    record.add(Attempt(started=1.0, ended=1.0, end=End.NOT_SENT, timeout=1.0))
    record.start(lambda: None, ())
    assert record.under_way() is None


def test_write_that_did_nothing_after_a_newer_one():
    """The newer one stays the last that was sent: an older one is not sent over it."""
    thing = Thing("a")
    thing.was_sent_by("older")
    before = thing.users
    thing.was_sent_by("write")
    thing.was_sent_by("newer")
    thing.did_nothing("write", before)
    assert thing.users == ("newer",)


async def test_secret_is_given_once(service):
    """A run that is cancelled while its verdict is stored, and awaited again, does not give it again."""
    given = []
    stored = asyncio.Event()
    async with client_of(
        service, on_secret=lambda key, secret: given.append(key)
    ) as client:
        write = client.webhooks.create(
            url="https://me.example/x", events=["invoice.created"]
        )
        options = options_of(client)

        class Journal:
            is_shared = False
            slow = True

            async def open_intents(self):
                for each in ():
                    yield each

            async def sending(self, intent):
                return None

            async def settled(self, outcome):
                if Journal.slow:
                    Journal.slow = False
                    stored.set()
                    await asyncio.Event().wait()

            def shelved(self, intent, *, sent):
                pass

            def heard(self, identity):
                pass

            def has_taken(self, intent):
                pass

        spec = write._spec  # reaches: as tests/writes/test_intent_while_waiting.py
        write.close()
        write = Write(replace(spec, options=replace(options, journal=Journal())))
        running = asyncio.create_task(write.outcome())
        await stored.wait()
        await cancel(running)
        assert (await write.outcome()).verdict is Verdict.APPLIED
    assert len(given) == 1
