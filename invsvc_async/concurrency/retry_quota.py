"""Bound the retries of one client together, so that an outage is not amplified; never sleep or send."""

from __future__ import annotations


class RetryQuota:
    """A token bucket that retries empty and successes fill; ``spent`` is what is missing from it."""

    def __init__(self) -> None:
        self.spent: float = 0.0

    def take(self, cost: float, *, of: float) -> bool:
        """Take *cost* for one retry from a bucket that holds *of*; ``False`` where that much is not left."""
        if self.spent + cost > of:
            return False
        self.spent += cost
        return True

    def refund(self, amount: float) -> None:
        """Give *amount* back after a success, up to a full bucket."""
        if self.spent:
            self.spent = max(0.0, self.spent - amount)
