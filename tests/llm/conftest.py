"""Fixtures of the tests of the pool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest


@pytest.fixture(autouse=True)
async def _loops_end_quietly() -> AsyncIterator[None]:
    """A budget that a test leaves open reports now and then: its timers would start tasks in a loop that is ending."""
    yield
    for timer in list(asyncio.get_running_loop()._scheduled):  # type: ignore[attr-defined]
        timer.cancel()
