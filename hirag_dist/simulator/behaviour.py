"""What happens to a call besides its answer: a function of (seed, request, attempt), so that a rehearsal repeats."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from hirag_dist.simulator.options import SimulatorOptions


@dataclass(frozen=True, slots=True)
class Plan:
    """How one call goes. Faults are further fields of it, drawn by further names."""

    delay_s: float


def plan_of(options: SimulatorOptions, request: str, attempt: int) -> Plan:
    """Return how a call goes.

    Args:
        request: hash of what is asked.
        attempt: 0 the first time that this is asked, then 1, 2, ….
    """
    share = 0.0
    if options.jitter:
        share = options.jitter * (2.0 * draw(options.seed, request, attempt, "latency") - 1.0)
    return Plan(delay_s=options.latency_ms / 1000.0 * (1.0 + share))


def draw(seed: int, request: str, attempt: int, name: str) -> float:
    """Return a number in [0, 1) that depends on all arguments and nothing else."""
    digest = hashlib.sha256(f"{seed}/{request}/{attempt}/{name}".encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56
