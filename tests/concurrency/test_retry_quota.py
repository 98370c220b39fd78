"""The token bucket for retries."""

from __future__ import annotations

from invsvc_async.concurrency.retry_quota import RetryQuota


def test_quota_until_it_is_empty() -> None:
    """Retries are granted while the bucket has their cost."""
    quota = RetryQuota()

    assert [quota.take(2, of=5) for _ in range(3)] == [True, True, False]
    assert quota.take(1, of=5)


def test_quota_never_overflows() -> None:
    """Successes refill the bucket, up to its size."""
    quota = RetryQuota()
    quota.take(1, of=2)
    for _ in range(100):
        quota.refund(0.3)

    assert [quota.take(1, of=2) for _ in range(3)] == [True, True, False]


def test_quota_of_a_view_without_one() -> None:
    """A view with an empty bucket takes nothing from the shared one."""
    quota = RetryQuota()

    assert not quota.take(1, of=0)
    assert quota.take(1, of=1)
