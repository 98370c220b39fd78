"""A service that queues what it cannot work on at once, in virtual time."""

import heapq
import random

from invsvc_async.concurrency.adaptive_limit import AdaptiveLimit


def spread(share):
    """Return random times that vary by *share* of their mean and are never negative."""
    return (
        (lambda dice: dice.lognormvariate(-(share**2) / 2, share))
        if share
        else (lambda _: 1.0)
    )


def wild(dice):
    """Return times of which four fifths are exponential."""
    return 0.2 + dice.expovariate(1.25)


class Service:
    """
    A service that works on *places* requests at once, *seconds* each, and queues the rest, in virtual time.

    Callers fill what the knee allows.  ``refuses_over``: answers 429 at once beyond so many in flight.  Of the
    client, *cost* is the time that each answer takes, one after another; *pauses* a second it stands still.
    """

    def __init__(
        self,
        places,
        *,
        seconds=0.05,
        shape=wild,
        callers=2000,
        first=1,
        seed=1,
        cost=0.0,
        pauses=0.0,
    ):
        self.knee, self.places, self.seconds, self.shape, self.callers = (
            AdaptiveLimit(first=first), places, seconds, shape, callers,
        )  # fmt: skip
        self.refuses_over, self.now, self.refused = 10**9, 0.0, 0
        self._dice, self._cost, self._pauses = random.Random(seed), cost, pauses
        self._free, self._ending, self._in_flight = [0.0] * places, [], 0
        self._idle_since, self._pause = (
            0.0,
            self._dice.expovariate(pauses) if pauses else float("inf"),
        )

    def resize(self, places):
        """Process *places* requests at once from now on."""
        free = sorted(self._free)
        self._free = free[-places:] + [self.now] * (places - len(free))
        self.places = places

    def run(self, since, until):
        """Run until *until*; return the mean in flight since *since*, and the share of the best rate."""
        area = answered = 0
        began = max(since, self.now)
        while self.now < until:
            while self._in_flight < min(self.knee.size, self.callers):
                self._begin()
            ended, started, refused = heapq.heappop(self._ending)
            ended = self._seen(ended)
            if ended > since:
                area += self._in_flight * (ended - max(since, self.now))
                answered += not refused
            self.refused += refused
            self.now = ended
            self.knee.note(
                started,
                ended,
                refused=refused,
                in_flight=min(self.knee.size, self.callers),
            )
            self._in_flight -= 1
        return area / (self.now - began), answered / (self.now - began) / (
            self.places / self.seconds
        )

    def _begin(self):
        self._in_flight += 1
        if self._in_flight > self.refuses_over:
            heapq.heappush(self._ending, (self.now + 0.002, self.now, True))
            return
        ended = max(self.now, self._free[0]) + self.seconds * self.shape(self._dice)
        heapq.heapreplace(self._free, ended)
        heapq.heappush(self._ending, (ended, self.now, False))

    def _seen(self, ended):
        """Return when the client receives what ended then."""
        at = max(ended, self._idle_since)
        while at >= self._pause:
            at = max(at, self._pause + self._dice.uniform(0.01, 0.06))
            self._pause += self._dice.expovariate(self._pauses)
        self._idle_since = at + self._cost
        return self._idle_since
