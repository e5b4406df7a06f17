"""Ways to rank the sources of a question: the product's, with its parts left out and its numbers open.

`core.retrieval.source_ranking` and `core.graph.pagerank` hold their numbers as constants, compiled in; this is a
slower copy with open constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy import sparse

from hirag_dist.core.access.filter import spans
from hirag_dist.core.graph.pagerank import WalkGraph, personalised_pagerank
from hirag_dist.core.retrieval.source_ranking import (
    NEAREST,
    SHARES,
    WORDS,
    RelationProvenance,
    excess,
    shared,
    tolerance_of,
)
from hirag_dist.types import FloatVector, IntVector

AS_IS: Final = "as-is"
STARTS: Final = ("names", "entities", "bridge", "chunks", "words")
MOST: Final = 20  # starting points of a kind: so many entities are retrieved
GROUPS: Final = tuple(SHARES)
SOURCES: Final = 10  # that the product returns
FUSED: Final = 100  # nearest chunks whose ranks are fused
RANK_OFFSET: Final = 60  # of reciprocal-rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009)
WORTH: Final[Mapping[str, Callable[[FloatVector], FloatVector]]] = {
    "squared": excess,
    "above": lambda scores: np.sqrt(excess(scores)),
    "rank": lambda scores: 1.0 / np.arange(1, len(scores) + 1),
    "score": lambda scores: np.maximum(scores, 0.0),
}
_LEFT: Final = 1e-9  # of the mass of an exact walk, when it ends

Scored = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Variant:
    """A way to rank.

    Attributes:
        starts: kinds of starting points, of `STARTS`.
        nearest: starting points of a kind, words aside.
        words: starting points by words.
        shares: of the groups, in the order of `GROUPS`.
        worth: of `WORTH`, what one counts by its score.
        tolerance: of the walk.
        restart: of a walk that is exact; None for the product's.
        ways: over relations: "down", or "both", to summaries too.
        order: of chunks: "walk", or "fused" with the order by vector.
    """

    starts: frozenset[str] = frozenset(STARTS)
    nearest: int = NEAREST
    words: int = WORDS
    shares: tuple[float, ...] = tuple(SHARES.values())
    worth: str = "squared"
    tolerance: float = tolerance_of(SOURCES)
    restart: float | None = None
    ways: str = "down"
    order: str = "walk"


@dataclass(frozen=True)
class Found:
    """Starting points of a question: rows with their scores, best first.

    Attributes:
        names: entities that it names.
        entities: that were retrieved.
        relations: the bridge's triples.
        chunks: nearest by vector, `FUSED` of them.
        words: chunks with the question's words, `MOST` of them.
    """

    names: Sequence[int]
    entities: Scored
    relations: Scored
    chunks: Scored
    words: Scored


def parsed(spec: str) -> Variant:
    """Return the variant that a SPEC speaks of.

    Raises:
        ValueError: there is no such part, or no such value of it.
    """
    values: dict[str, Any] = {}
    for part in () if spec == AS_IS else spec.split(","):
        key, _, value = part.partition("=")
        known = {"worth": tuple(WORTH), "ways": ("down", "both"), "order": ("walk", "fused")}.get(key)
        if key == "starts" and set(value.split("+")) <= set(STARTS):
            values[key] = frozenset(value.split("+"))
        elif known is not None and value in known:
            values[key] = value
        elif key in ("nearest", "words") and value.isdecimal() and 0 < int(value) <= MOST:
            values[key] = int(value)
        elif key == "shares" and len(value.split("/")) == len(GROUPS):
            values[key] = tuple(map(float, value.split("/")))
        elif key in ("tolerance", "restart") and 0 < float(value) < 1:
            values[key] = float(value)
        else:
            raise ValueError(f"no part of the ranking is {part!r}; --help has those there are")
    return Variant(**values)


def ranked(ways: WalkGraph, origins: RelationProvenance, found: Found, variant: Variant) -> list[int]:
    """Return the rows of the chunks that a variant finds, best first, ties by row."""
    nodes, shares = starts_of(ways, origins, found, variant)
    if variant.ways == "both":
        ways = ways._replace(layer_ends=np.full_like(ways.layer_ends, len(ways.layers)))
    if variant.restart is None:
        rows, mass = personalised_pagerank(ways, nodes, shares, tolerance=variant.tolerance)
    else:
        rows, mass = exact_walk(ways, nodes, shares, variant.restart)
    walked: list[int] = rows[np.lexsort((rows, -mass))].tolist()
    return fused([walked, [row for row, _ in found.chunks]]) if variant.order == "fused" else walked


def exact_walk(ways: WalkGraph, nodes: IntVector, shares: FloatVector, restart: float) -> tuple[IntVector, FloatVector]:
    """Return (chunk rows, share of the walk at each) as `core.graph.pagerank` does, by power iteration."""
    n_entities, n_chunks = len(ways.layers), len(ways.chunk_indptr) - 1
    rows = np.repeat(np.arange(n_entities), np.diff(ways.indptr))
    open_ways = ways.indices < ways.layer_ends[ways.layers[rows]]
    mentions = np.repeat(np.arange(n_entities), np.diff(ways.entity_indptr))
    of_chunks = np.repeat(np.arange(n_chunks), np.diff(ways.chunk_indptr)) + n_entities
    leave = np.concatenate([rows[open_ways], mentions, of_chunks])
    reach = np.concatenate([ways.indices[open_ways], ways.entity_chunks + n_entities, ways.chunk_entities])
    size = n_entities + n_chunks
    likely = 1.0 / np.bincount(leave, minlength=size)[leave]
    step = sparse.csr_array((likely, (reach, leave)), shape=(size, size))
    moving = np.bincount(nodes, shares, size)
    mass = np.zeros(size)
    for _ in range(math.ceil(math.log(_LEFT) / math.log(1.0 - restart))):
        mass += restart * moving
        moving = (1.0 - restart) * (step @ moving)
    chunks = np.flatnonzero(mass[n_entities:])
    return chunks, mass[n_entities + chunks]


def fused(orders: Sequence[Sequence[int]]) -> list[int]:
    """Return the union of some orders by the sum of 1 / (`RANK_OFFSET` + rank), ties by row.

    >>> fused([[7, 8, 9], [9, 7]])
    [7, 9, 8]
    """
    sums: dict[int, float] = {}
    for order in orders:
        for rank, row in enumerate(order, 1):
            sums[row] = sums.get(row, 0.0) + 1.0 / (RANK_OFFSET + rank)
    return sorted(sums, key=lambda row: (-sums[row], row))


def starts_of(
    ways: WalkGraph, origins: RelationProvenance, found: Found, variant: Variant
) -> tuple[IntVector, FloatVector]:
    """Return (nodes, shares) of the seeds, as `core.retrieval.source_ranking.SeedSet` does, with its constants open."""

    def best(kind: str, scored: Scored) -> tuple[IntVector, FloatVector]:
        limit = variant.words if kind == "words" else variant.nearest
        kept = sorted(scored if kind in variant.starts else (), key=lambda one: (-one[1], one[0]))[:limit]
        scores = np.array([score for _, score in kept], np.float64)
        return np.array([row for row, _ in kept], np.int64), WORTH[variant.worth](scores)

    mentions = np.maximum(np.diff(ways.entity_indptr), 1)
    named = np.array(found.names if "names" in variant.starts else (), np.int64)
    entities, worth = best("entities", found.entities)
    relations, weights = best("bridge", found.relations)
    first, last = origins.relation_indptr[relations], origins.relation_indptr[relations + 1]
    owner, entries = spans(first, last)
    stated = origins.relation_chunks[entries].astype(np.int64) + len(ways.layers)
    near, nearness = best("chunks", found.chunks)
    with_words, lexical = best("words", found.words)
    retrieved = [(entities, worth / mentions[entities]), (stated, (weights / np.maximum(last - first, 1))[owner])]
    n_entities = len(ways.layers)
    groups = [
        (named, 1.0 / mentions[named]),
        shared(retrieved),
        shared([(near + n_entities, nearness)]),
        shared([(with_words + n_entities, lexical)]),
    ]
    return shared(groups, variant.shares)
