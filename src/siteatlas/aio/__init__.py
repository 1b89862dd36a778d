"""Helpers for asyncio: fairness of the event loop, background tasks, loop-local values."""
