"""Metrics of a hierarchy: path lengths between entities with and without it, and its coverage.

The paper shows neither directly; its reason for summary entities (§1, §4.1) is that entities of distant parts of the
text get a short path between them. So paths are measured between entities of layer 0 that share no chunk: those that
do are near each other by extraction alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.graph.bfs import UNREACHED, hop_distances
from hirag_dist.core.graph.csr import by_lowest_node, heads, rows_of
from hirag_dist.core.groupby import shared_counts
from hirag_dist.types import CsrGraph, IntVector


def modularity(graph: CsrGraph, labels: IntVector, resolution: float = 1.0) -> float:
    """Return Q = Σ_c [w_c / W − γ (d_c / W)²] over communities c.

    W is the weight of all entries of the graph (each edge both ways), w_c of those inside c, and d_c of those that
    start in c. Equal partitions give equal bits, whatever their labels are.

    Args:
        graph: undirected, each edge both ways, no loops; weights that are not positive count as none.
        labels: (n_nodes,) community of each node; a node labelled −1 is one by itself.
        resolution: γ.

    Returns:
        At most 1.0; 0.0 for a graph without edges.
    """
    weights = np.maximum(graph.weights, 0).astype(np.float64)
    whole = float(weights.sum())
    if not whole:
        return 0.0
    alone = labels < 0
    known = labels.astype(np.int64)
    known[alone] = int(labels.max(initial=-1)) + 1 + np.arange(int(alone.sum()))
    known = by_lowest_node(known)
    start = known[heads(graph)]
    inside = float(weights[start == known[graph.indices]].sum())
    degrees = np.bincount(start, weights, minlength=int(known.max()) + 1) / whole
    return inside / whole - resolution * float(np.sum(degrees * degrees))


Bfs = Callable[[CsrGraph, IntVector], NDArray[np.int32]]

_PAIRS = 16_000_000  # looked at, about: below it all of them are
_FEWEST_SOURCES = 128  # of a sample, however large the graph
_BLOCK_PAIRS = 64_000_000  # distances held at a time of each graph, at most
_BLOCK_SOURCES = 1024


@dataclass(frozen=True, slots=True)
class PathLengthSample:
    """Hops between entities of layer 0 that share no chunk, in the graph of layer 0 and in that of all layers.

    The second graph holds the first, so a pair that the first joins is joined in both, and no farther apart.

    Attributes:
        sources: entities that the pairs begin at.
        exact: whether these are all entities, and the pairs all pairs; otherwise a seeded sample of entities, each
            with every other one.
        flat_unreachable: pairs that layer 0 does not join.
        unreachable: pairs that all layers together do not join.
        flat_mean: mean hops in layer 0 of the pairs that it joins; None where it joins none.
        mean_of_flat: mean hops over all layers of those same pairs.
        mean: mean hops over all layers of every pair that they join.
        flat_hops: [h] pairs that are h hops apart in layer 0.
        hops: [h] pairs that are h hops apart over all layers.
    """

    pairs: int
    sources: int
    exact: bool
    flat_unreachable: int
    unreachable: int
    flat_mean: float | None
    mean_of_flat: float | None
    mean: float | None
    flat_hops: tuple[int, ...]
    hops: tuple[int, ...]


def path_lengths(
    chunk_ids: pa.ChunkedArray, base: IntVector, flat: CsrGraph, whole: CsrGraph, bfs: Bfs = hop_distances
) -> PathLengthSample:
    """Return how far apart entities of layer 0 are that share no chunk.

    Time goes with the pairs looked at: every pair of up to 4,000 entities, 128 entities with all others at a million.
    Memory: at most some 1.5 GB in addition to the graphs, a tenth of it below 10,000 entities.

    Args:
        chunk_ids: (n_base,) ids of the chunks of each entity of layer 0.
        base: (n_base,) nodes of `whole` that are these entities.
        flat: graph of layer 0, its nodes in the order of `base`.
        bfs: as of `protocols.Kernels`.
    """
    lists = chunk_ids.combine_chunks()
    sizes = lists.value_lengths().to_numpy(zero_copy_only=False)
    chunks = lists.flatten().dictionary_encode().indices.to_numpy().astype(np.int64)
    in_chunks = np.repeat(np.arange(len(sizes)), sizes), chunks
    n_base = len(base)
    n_sources = min(n_base, max(_PAIRS // max(n_base, 1), _FEWEST_SOURCES))
    exact = n_sources == n_base
    sources = np.sort(np.random.default_rng(0).permutation(n_base)[:n_sources])
    counts = [np.zeros(0, np.int64) for _ in range(3)]
    n_pairs = 0
    step = max(min(_BLOCK_PAIRS // max(whole.n_nodes, 1), _BLOCK_SOURCES), 1)
    for first in range(0, n_sources, step):
        rows = sources[first : first + step]
        wanted = _apart(in_chunks, n_base, rows)
        if exact:
            wanted &= np.arange(n_base)[:, None] > rows  # a pair once
        else:
            wanted[rows, np.arange(len(rows))] = False
        n_pairs += int(wanted.sum())
        near = bfs(flat, rows).T[wanted]  # a node's hops stand together, as the CPU's kernels write them
        far = bfs(whole, base[rows]).T[base][wanted]
        joined = near != UNREACHED
        for at, lengths in enumerate((near[joined], far[joined], far[far != UNREACHED])):
            added = np.bincount(lengths, minlength=len(counts[at]))
            added[: len(counts[at])] += counts[at]
            counts[at] = added
    flat_hops, hops_of_flat, hops = (tuple(counted.tolist()) for counted in counts)
    return PathLengthSample(
        pairs=n_pairs,
        sources=n_sources,
        exact=exact,
        flat_unreachable=n_pairs - sum(flat_hops),
        unreachable=n_pairs - sum(hops),
        flat_mean=_mean(flat_hops),
        mean_of_flat=_mean(hops_of_flat),
        mean=_mean(hops),
        flat_hops=flat_hops,
        hops=hops,
    )


def covered(entities: pa.Table, relations: pa.Table) -> list[float | None]:
    """Return, for each layer from 0 up, the share of its entities with a relation to a summary of the layer above.

    None for the highest layer, and where a layer is empty.

    Args:
        entities: with `entity_id` and `layer`.
        relations: with `source_id`, `target_id` and `kind`.
    """
    layers = entities["layer"].to_numpy()
    if not len(layers):
        return []
    upward = relations.filter(pc.equal(relations["kind"], "summary"))
    ends = np.stack([rows_of(upward[name], entities["entity_id"]) for name in ("source_id", "target_id")])
    ends = ends[:, (ends >= 0).all(axis=0)]
    lower = np.where(layers[ends[0]] <= layers[ends[1]], ends[0], ends[1])
    attached = np.zeros(len(layers), bool)
    attached[lower] = True
    top = int(layers.max())
    return [
        float(attached[layers == layer].mean()) if layer < top and (layers == layer).any() else None
        for layer in range(top + 1)
    ]


def _apart(in_chunks: tuple[IntVector, IntVector], n_entities: int, rows: IntVector) -> NDArray[np.bool_]:
    """Return (n_entities, n_rows), false where the two share a chunk.

    Args:
        in_chunks: (entity, chunk) of each pair in which the entity was found in the chunk, by entity.
    """
    entities, chunks = in_chunks
    place = np.full(n_entities, -1, np.int64)
    place[rows] = np.arange(len(rows))
    chosen = place[entities] >= 0
    own, other, _ = shared_counts(entities, chunks, place[entities[chosen]], chunks[chosen])
    apart = np.ones((n_entities, len(rows)), bool)
    apart[own, other] = False
    return apart


def _mean(counts: tuple[int, ...]) -> float | None:
    total = sum(counts)
    return sum(hops * count for hops, count in enumerate(counts)) / total if total else None
