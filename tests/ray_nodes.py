"""Nodes of a real Ray cluster on this machine, for tests that add and kill some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hirag_dist.execution.ray.cluster import kill_half_started

HEALTH = {  # a dead node is noticed within a few seconds, not thirty; one that is slow to start is given its time
    "health_check_initial_delay_ms": 10_000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}


def started(start: Callable[[], Any]) -> Any:
    """A machine that does much else may not start a node within the 30 s that Ray gives it."""
    try:
        return start()
    except Exception as error:
        kill_half_started(error)
        return start()
