"""A common limit on the retries of one client, so that retries do not amplify an outage."""

from __future__ import annotations


class RetryQuota:
    """A token bucket that retries drain and successes refill.  ``spent`` is how much is missing."""

    def __init__(self) -> None:
        self.spent: float = 0.0

    def take(self, cost: float, *, of: float) -> bool:
        """Charge *cost* for one retry to a bucket of size *of*.  Return whether enough was left."""
        if self.spent + cost > of:
            return False
        self.spent += cost
        return True

    def refund(self, amount: float) -> None:
        """Refill *amount* after a success, up to a full bucket."""
        if self.spent:
            self.spent = max(0.0, self.spent - amount)
