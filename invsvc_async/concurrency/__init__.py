"""Clocks, deadlines, locks and limits for asyncio. Knows nothing of the service."""
