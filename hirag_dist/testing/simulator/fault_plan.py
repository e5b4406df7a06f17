"""Latency and faults of a call: a function of (seed, request, attempt), so that a rehearsal repeats."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass

from hirag_dist.testing.simulator.options import FAULT_RATES, SimulatorOptions

FAIL, HANG, MALFORMED, TRUNCATE = "fail", "hang", "malformed", "truncate"
CHAT_FAULTS = frozenset({FAIL, HANG, MALFORMED, TRUNCATE})
EMBEDDING_FAULTS = frozenset({FAIL, HANG})


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Course of one call.

    Attributes:
        delay_s: how long the reply takes.
        fault: what goes wrong, or None.
        form: [0, 1), chooses among the forms of the fault.
        share: [0, 1), where in the reply it strikes.
    """

    delay_s: float
    fault: str | None = None
    form: float = 0.0
    share: float = 0.0


def plan_of(
    options: SimulatorOptions, request: str, attempt: int, kinds: Collection[str] = CHAT_FAULTS, n_faults: int = 0
) -> FaultPlan:
    """Return how a call goes.

    Args:
        request: hash of what is asked.
        attempt: 0 the first time that this is asked, then 1, 2, ….
        kinds: the faults that such a call can have; another that is drawn is none.
        n_faults: how many faults earlier attempts got.
    """
    share = 0.0
    if options.jitter:
        share = options.jitter * (2.0 * draw(options.seed, request, attempt, "latency") - 1.0)
    delay_s = options.latency_ms / 1000.0 * (1.0 + share)
    fault = _fault(options, request, attempt)
    spared = options.max_faults_per_request is not None and n_faults >= options.max_faults_per_request
    if fault is None or fault not in kinds or spared:
        return FaultPlan(delay_s)
    form, place = (draw(options.seed, request, attempt, name) for name in ("form", "share"))
    return FaultPlan(delay_s, fault, form, place)


def draw(seed: int, request: str, attempt: int, name: str) -> float:
    """Return a number in [0, 1) that depends on all arguments and nothing else."""
    digest = hashlib.sha256(f"{seed}/{request}/{attempt}/{name}".encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


def _fault(options: SimulatorOptions, request: str, attempt: int) -> str | None:
    """One draw for all kinds, so that each has exactly its share."""
    edges = 0.0
    drawn: float | None = None
    for name in FAULT_RATES:
        rate: float = getattr(options, name)
        if rate:
            drawn = draw(options.seed, request, attempt, "fault") if drawn is None else drawn
            edges += rate
            if drawn < edges:
                return name.removesuffix("_rate")
    return None
