"""Set-ups, drawn calls, bounds and outcomes of simulated clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hirag_dist.execution.stage import ByRows
from hirag_dist.indexing.stages.extract import ExtractGraph


@dataclass(frozen=True, slots=True)
class Setup:
    """A cluster, an endpoint and the calls to be made.

    Attributes:
        chunks: rows of the stage that calls; each makes `calls_a_chunk`, one after the other.
        input_tokens, output_tokens: of a call; replies are lognormal around the second with `spread`, as latencies are.
        rpm, tpm, max_concurrent: of the endpoint, known to the configuration; None for no limit.
        burst_s: for how long the coordinator keeps unused quota; the endpoint keeps half a second more.
        latency_s: median of a call.
        spread: standard deviation of the logarithm of latency and of reply length.
        stragglers: share of calls that take `straggler_times` as long.
        deaths: workers that die, at times drawn over the first four fifths of T_min.
        noticed_s: until the driver knows of a death; away_s: until the worker is there again, from then on.
        message_s: one way, between a worker and the coordinator.
        handling_s: of the coordinator's process for each message, Ray's part of it; one after the other.
        store_s: until a reply is durable. task_s: of a task without its calls.
        tasks_in_flight: tasks that a worker holds; None as the program chooses.
    """

    workers: int = 4
    chunks: int = 1000
    calls_a_chunk: int = 2
    input_tokens: int = 3000
    output_tokens: int = 1500
    rpm: float | None = None
    tpm: float | None = None
    max_concurrent: int = 64
    burst_s: float = 10.0
    latency_s: float = 1.0
    spread: float = 0.3
    stragglers: float = 0.0
    straggler_times: float = 10.0
    deaths: int = 0
    noticed_s: float = 5.0
    away_s: float = 20.0
    message_s: float = 0.0005
    handling_s: float = 0.0003
    store_s: float = 0.002
    task_s: float = 0.02
    tasks_in_flight: int | None = None
    seed: int = 0

    def room(self) -> int:
        """Return the tasks that a worker holds at a time, as `composition` chooses them."""
        if self.tasks_in_flight is not None:
            return self.tasks_in_flight
        return max(-(-self.max_concurrent * 2 // (_rows_a_task() * self.workers)), 4)


@dataclass(frozen=True, slots=True)
class Fate:
    """Duration of each call, drawn in advance, so that it is the same for any number of workers."""

    latency_s: np.ndarray
    output_tokens: np.ndarray

    @classmethod
    def drawn(cls, setup: Setup) -> Fate:
        """Draw for all calls: arrays of (chunks, calls_a_chunk)."""
        rng = np.random.default_rng(setup.seed)
        shape = setup.chunks, setup.calls_a_chunk
        latency = setup.latency_s * np.exp(setup.spread * rng.standard_normal(shape))
        latency[rng.random(shape) < setup.stragglers] *= setup.straggler_times
        output = setup.output_tokens * np.exp(setup.spread * rng.standard_normal(shape))
        return cls(latency, np.maximum(output, 1).astype(np.int64))


@dataclass(slots=True)
class Outcome:
    """Outcome of a run.

    Attributes:
        wall_s: virtual seconds.
        bound_s: T_min: no schedule within the limits could be faster. by: the limit that says so.
        longest_s: the chunk whose calls, one after another, take longest; a scheduler that does not know it may start
            it last, and take T_min plus this (Graham's bound of list scheduling).
        calls: answered; paid_again: of those, answered again since the worker died before it stored the first reply.
        stored: replies that are kept, one of each call.
        refused: 429s. peak_minute: most calls let in within 60 s, over rpm; None where there is none.
        asks, tells: requests and reports to the coordinator. peak_messages: in one second, at most.
        backlog_s: longest time that a message waited in the coordinator's queue.
        coordinator_s: real CPU seconds of the coordinator's code in this process.
        fairness: Jain's index of the calls that workers were given which never died; 1 is equal shares.
    """

    wall_s: float
    bound_s: float
    by: str
    longest_s: float
    calls: int
    paid_again: int
    stored: int
    refused: int
    peak_minute: float | None
    asks: int
    tells: int
    peak_messages: int
    backlog_s: float
    coordinator_s: float
    fairness: float
    deaths: int

    def figures(self) -> dict[str, Any]:
        """Return them as a line has them, with ratios."""
        messages = self.asks + self.tells
        return {
            "wall_s": round(self.wall_s, 2),
            "t_min_s": round(self.bound_s, 2),
            "wall_over_t_min": round(self.wall_s / self.bound_s, 4),
            "bound_by": self.by,
            "longest_chunk_s": round(self.longest_s, 2),
            "calls": self.calls,
            "calls_per_s": round(self.calls / self.wall_s, 1),
            "paid_again": self.paid_again,
            "rate_limited": self.refused,
            "peak_minute_over_rpm": None if self.peak_minute is None else round(self.peak_minute, 4),
            "asks_per_s": round(self.asks / self.wall_s, 1),
            "tells_per_s": round(self.tells / self.wall_s, 1),
            "peak_messages_per_s": self.peak_messages,
            "coordinator_backlog_ms": round(self.backlog_s * 1000, 2),
            "coordinator_code_us_per_message": round(self.coordinator_s / max(messages, 1) * 1e6, 1),
            "coordinator_code_share": round(self.coordinator_s / self.wall_s, 4),
            "fairness": round(self.fairness, 4),
            "deaths": self.deaths,
        }


def least_s(setup: Setup, fate: Fate) -> tuple[float, str]:
    """Return T_min in seconds, and the limit, or the slowest chunk, that determines it.

    A rate begins with the quota of `saved_s` seconds, saved while no call was made.
    """
    calls = setup.chunks * setup.calls_a_chunk
    saved_s = min(setup.burst_s, 1.0)
    tokens = calls * setup.input_tokens + int(fate.output_tokens.sum())
    bounds = {
        "requests": calls / setup.rpm * 60.0 - saved_s if setup.rpm else 0.0,
        "tokens": tokens / setup.tpm * 60.0 - saved_s if setup.tpm else 0.0,
        "concurrency": float(fate.latency_s.sum()) / setup.max_concurrent,
        "slowest chunk": float(fate.latency_s.sum(axis=1).max()),
    }
    by = max(bounds, key=lambda name: bounds[name])
    return bounds[by], by


def jain(shares: list[int]) -> float:
    """Return Jain's index of fairness, 1 where all are equal, 1 / n where one has all.

    >>> jain([2, 2]), jain([1, 0])
    (1.0, 0.5)
    """
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def _rows_a_task() -> int:
    split = ExtractGraph.split
    assert isinstance(split, ByRows)
    return split.n
