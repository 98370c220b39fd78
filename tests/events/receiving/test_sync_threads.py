"""The first use of a receiver by several threads at once, on each Python: it decides what is locked."""

from __future__ import annotations

import threading
import time
from typing import Any

from invsvc_async import events
from invsvc_async.events import SyncReceiver
from tests.events.bodies import SECRET, SHARED, encoded, headers_of, v2


def test_first_deliveries_in_several_threads(monkeypatch) -> None:
    """They share one receiver: a second one could not start, and would refuse all that come later."""
    receiver = events.Receiver(secrets=SECRET, shared_header=events.SharedHeader(*SHARED))
    both, answers, makers = threading.Barrier(2, timeout=30), list[int](), list[int]()

    def made(of: events.Receiver) -> SyncReceiver:
        makers.append(threading.get_ident())
        time.sleep(0.05)  # so that the other thread asks meanwhile
        return SyncReceiver(of)

    def deliver_together(number: int) -> None:
        both.wait()
        deliver(number)

    def deliver(number: int) -> None:
        body = encoded(v2("invoice.created", number=number))
        answers.append(receiver.sync.receive(body, headers_of(body, shared=True)).status)

    monkeypatch.setattr("invsvc_async.events.receiving.receiver.SyncReceiver", made)
    threads: list[Any] = [threading.Thread(target=deliver_together, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    deliver(2)

    assert answers == [200, 200, 200]
    assert len(makers) == 1
    receiver.sync.stop()
