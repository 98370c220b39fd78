"""Task engines that run tasks again: what their workers run, for ``python -m tests.soak.engines``."""
