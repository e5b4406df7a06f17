"""Sizes of large builds, multiplied from Mix: tables of docs/research/scale.md and docs/operations/sizing.md.

`python -m benchmarks.scale tables` prints them. Nothing is measured: one unit is what was measured on Mix
(docs/research/measurements.md), and every row is the unit times the number of units. The values of the chart in
docs/operations/sizing.md are rounded up from the rows "needed".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hirag_dist.execution.partitioning import runs_per_file

# One unit: the Mix corpus.
TOKENS, CHUNKS, CALLS, TOKENS_A_CALL = 0.6116e6, 576, 769, 4506
ENTITY_MENTIONS, RELATION_MENTIONS, ENTITIES, RELATIONS = 12_237, 17_110, 9480, 25_811
STORED_BYTES, SNAPSHOT_BYTES, CPU_S, REPLIES = 69.1e6, 43.8e6, 12.1, 0.36
MAPPED_BYTES, PRIVATE_BYTES = 4246e6, 323e6  # of a million entities: mapped by a pod, private to each of its processes
LEIDEN_BYTES = 2.2e9 / 5e6  # of a relation, with the outlines of reports
PUBLISHING_BYTES = 1376e6 / 1e6  # of an entity, of a million with five million relations
LAYER_0 = 8505  # entities
TABLES_BYTES, VECTORS_BYTES, GRAPH_BYTES = 20.9e6, 15.5e6, 0.7e6  # of the snapshot, uncompressed
MERGED_ROWS, CHUNKS_A_TASK = 100_000, 16

BILLION, HUNDRED_MILLION = 1e9 / TOKENS, 1e8 / ENTITIES  # units
SIZES = [size / TOKENS for size in (1e6, 1e7, 1e8, 1e9)]

Rows = dict[str, Callable[[float], str]]


def count(number: float) -> str:
    """Return a number with three digits.

    >>> [count(number) for number in (942, 16_349, 1_710_000)]
    ['942', '16,300', '1.71 M']
    """
    if number >= 1e9:
        return f"{number / 1e9:.3g} G"
    if number >= 1e6:
        return f"{number / 1e6:.3g} M"
    digits = max(0, len(str(int(number))) - 3)
    return f"{round(number, -digits):,.0f}"


def size(number: float, unit: float = 1e9, name: str = "GB") -> str:
    """Return bytes in a unit, with three digits at most."""
    return f"{number / unit:.3g} {name}"


def duration(seconds: float) -> str:
    """Return a time.

    >>> [duration(time) for time in (51, 511, 51_100, 511_000)]
    ['51 s', '8.5 min', '14 h 12 min', '142 h']
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.2g} min"
    if seconds < 86400:
        return f"{seconds // 3600:.0f} h {seconds % 3600 / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def merging_tasks(units: float) -> tuple[float, float]:
    """Return the tasks that merge entities and relations."""
    return units * ENTITY_MENTIONS / MERGED_ROWS, units * RELATION_MENTIONS / MERGED_ROWS


def small_reads(units: float) -> float:
    """Return the reads between the two passes: each task reads its piece of each file of the first pass."""
    return sum(math.ceil(n / runs_per_file(math.ceil(n))) * n for n in merging_tasks(units))


def call_tokens(units: float) -> float:
    """Return the tokens of all calls."""
    return units * CALLS * TOKENS_A_CALL


def dollars(units: float, prompts: float, replies: float) -> str:
    """Return the cost of the calls at prices of a million tokens."""
    cost = call_tokens(units) / 1e6 * ((1 - REPLIES) * prompts + REPLIES * replies)
    return f"{cost:.1f}" if cost < 10 else count(cost)


def mapped(units: float) -> float:
    """Return the bytes that a query pod maps."""
    return units * ENTITIES * MAPPED_BYTES / 1e6


SCALE: Rows = {
    "chunks; tasks of 16 of them": lambda n: f"{count(n * CHUNKS)}; {count(n * CHUNKS / CHUNKS_A_TASK)}",
    "calls; tokens of calls": lambda n: f"{count(n * CALLS)}; {count(call_tokens(n))}",
    "mentions, of entities and of relations": lambda n: f"{count(n * ENTITY_MENTIONS)}, {count(n * RELATION_MENTIONS)}",
    "tasks that merge": lambda n: " and ".join(f"{tasks:,.0f}" for tasks in merging_tasks(n)),
    "small reads between their two passes": lambda n: count(small_reads(n)),
    "entities, relations": lambda n: f"{count(n * ENTITIES)}, {count(n * RELATIONS)}",
    "vectors of 384 numbers; of 1,024": lambda n: "; ".join(size(n * ENTITIES * dim * 4) for dim in (384, 1024)),
    "index and work in the store": lambda n: size(n * STORED_BYTES),
    "CPU": lambda n: duration(n * CPU_S),
    "reply store index in a worker (2.2 bytes a reply)": lambda n: size(n * CALLS * 2.2, 1e6, "MB"),
    "time under 10,000 requests and 10 M tokens a minute": lambda n: duration(
        max(n * CALLS / 10_000, call_tokens(n) / 10e6) * 60
    ),
    "time under 100,000 requests and 100 M tokens a minute": lambda n: duration(
        max(n * CALLS / 100_000, call_tokens(n) / 100e6) * 60
    ),
    "time under 60,000 requests a minute": lambda n: duration(n * CALLS / 60_000 * 60),
    "all that can be split, on 24 CPUs": lambda n: duration(n * CPU_S / 24),
    "clustering of layer 0, if one process did all of it": lambda n: duration(n * LAYER_0 / 1e6 * 161),
    "communities, one process": lambda n: duration(n * RELATIONS / 5e6 * 22),
    "publishing, one process: deriving the serving files": lambda n: duration(n * ENTITIES / 1e6 * 40),
    "the same: counting their tokens": lambda n: duration(n * (ENTITIES * 30e-6 + RELATIONS * 12e-6)),
}
SIZING: Rows = {
    "chunks": lambda n: count(n * CHUNKS),
    "calls to the model": lambda n: count(n * CALLS),
    "tokens of these calls: in; out": lambda n: "; ".join(
        count(call_tokens(n) * share) for share in (1 - REPLIES, REPLIES)
    ),
    "entities, at most; relations, at most": lambda n: f"{count(n * ENTITIES)}; {count(n * RELATIONS)}",
    "dollars, at 0.15 for a million tokens in and 0.60 out": lambda n: dollars(n, 0.15, 0.60),
    "dollars, at 2.50 in and 10 out": lambda n: dollars(n, 2.50, 10.0),
    "time under 1 M tokens a minute": lambda n: duration(call_tokens(n) / 1e6 * 60),
    "time under 10 M tokens a minute": lambda n: duration(call_tokens(n) / 10e6 * 60),
    "time under 100 M tokens a minute": lambda n: duration(call_tokens(n) / 100e6 * 60),
    "CPU of the whole build": lambda n: duration(n * CPU_S),
    "bucket: index and work; with one earlier snapshot": lambda n: "; ".join(
        size(n * stored) for stored in (STORED_BYTES, STORED_BYTES + SNAPSHOT_BYTES)
    ),
    # Leiden, the shared memory, and the other worker
    "needed: memory of a CPU worker's pod": lambda n: size(n * RELATIONS * LEIDEN_BYTES + 2**30 + 0.7e9, 2**30, "Gi"),
    # publishing, Ray's own, and the shared memory
    "needed: memory of the head": lambda n: size(n * ENTITIES * PUBLISHING_BYTES + 1e9 + 2**30, 2**30, "Gi"),
    "needed: memory of a query pod": lambda n: size(mapped(n) + 2 * PRIVATE_BYTES, 2**30, "Gi"),
    "needed: `query.cache.size`": lambda n: size(2 * mapped(n) / 0.95, 2**30, "Gi"),
    "needed: `build.scratch.size`": lambda n: size(n * (TABLES_BYTES + 2 * VECTORS_BYTES + GRAPH_BYTES), 2**30, "Gi"),
    "needed: `query.startupSeconds` at 100 MB/s": lambda n: f"{2 * mapped(n) / 100e6:.0f}",
}


def table(head: Sequence[str], rows: Rows, units: Sequence[float]) -> str:
    """Return a Markdown table with a column for each number of units."""
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [f"| {' | '.join((label, *(row(n) for n in units)))} |" for label, row in rows.items()]
    return "\n".join(lines)


def main() -> None:
    """Print the tables."""
    print(f"A billion tokens are {BILLION:,.0f} units, a hundred million entities {HUNDRED_MILLION:,.0f}.\n")
    print(table(("", "a billion tokens ×", "a hundred million entities ×"), SCALE, (BILLION, HUNDRED_MILLION)), "\n")
    print(table(("corpus tokens", "1 M ×", "10 M ×", "100 M ×", "1 G ×"), SIZING, SIZES))


if __name__ == "__main__":
    main()
