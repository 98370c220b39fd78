"""
The error for a broken rule of writes.
"""

from __future__ import annotations


class Broken(Exception):  # noqa: N818 - what is broken is a rule
    """A rule of the writes is broken."""

    def __init__(self, rule: int, words: str) -> None:
        super().__init__(f"{rule}: {words}")
        self.rule = rule


def hold(rule: int, truth: object, words: str) -> None:
    """Raise the error of *rule* unless *truth*."""
    if not truth:
        raise Broken(rule, words)
