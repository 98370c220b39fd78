"""The first use of a receiver by several threads at once, on each Python: it decides what is locked."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from invsvc_async import events
from invsvc_async.events import SyncReceiver
from tests.events.bodies import HEADER, SECRET, encoded, headers_of, v2


def test_first_deliveries_in_several_threads(monkeypatch) -> None:
    """They share one receiver: a second one could not start, and would refuse all that come later."""
    receiver = events.Receiver(secrets=SECRET, shared_header=HEADER)
    both, makers = threading.Barrier(2, timeout=300), list[int]()

    def made(of: events.Receiver) -> SyncReceiver:
        makers.append(threading.get_ident())
        time.sleep(0.05)  # sleeps: so that the other thread asks meanwhile
        return SyncReceiver(of)

    def deliver_together(number: int) -> int:
        both.wait()
        return deliver(number)

    def deliver(number: int) -> int:
        body = encoded(v2("invoice.created", number=number))
        return receiver.sync.receive(body, headers_of(body, shared=True)).status

    # reaches: what is made while two threads ask is counted
    monkeypatch.setattr("invsvc_async.events.receiving.receiver.SyncReceiver", made)
    with ThreadPoolExecutor(2) as threads:
        assert [*threads.map(deliver_together, range(2))] == [200, 200]
    assert deliver(2) == 200
    assert len(makers) == 1
    receiver.sync.stop()
