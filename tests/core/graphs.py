"""Graphs of numbered entities as tables and as arrays, their communities, ways to chunks, and Leiden's order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.arrays import all_at_once, read_only
from hirag_dist.core.graph.csr import build_graph
from hirag_dist.core.graph.leiden import visiting_keys
from hirag_dist.core.graph.pagerank import WalkGraph, pagerank_steps
from hirag_dist.core.retrieval.levels import CommunityIndex, invert
from hirag_dist.schemas import RELATIONS
from hirag_dist.types import CsrGraph, FloatVector, IntVector
from tests.table_rows import filled_table

Edges = Sequence[tuple[int, int, float]]
Lists = Sequence[Sequence[int]]


def id_of(entity: int) -> str:
    return f"e{entity:06d}"


def ids_of(n_entities: int) -> pa.ChunkedArray:
    return pa.chunked_array([[id_of(at) for at in range(n_entities)]], pa.string())


def relation_table(n_entities: int, relations: Edges) -> tuple[pa.ChunkedArray, pa.Table]:
    """Return the ids of entities, in order, and RELATIONS between them as (source, target, weight)."""
    rows = (
        {"relation_id": f"r{at:06d}", "source_id": id_of(source), "target_id": id_of(target), "weight": weight}
        for at, (source, target, weight) in enumerate(relations)
    )
    return ids_of(n_entities), filled_table(RELATIONS, rows)


def csr_of(n_nodes: int, edges: Edges) -> CsrGraph:
    return build_graph(*relation_table(n_nodes, edges))


def csr(graph: nx.Graph) -> CsrGraph:
    """Return a graph of nodes 0 … n − 1."""
    return csr_of(len(graph), [(a, b, float(weight)) for a, b, weight in graph.edges(data="weight", default=1.0)])


def flat(lists: Lists) -> tuple[IntVector, NDArray[np.int32]]:
    """Return lists of rows as CSR: their bounds, and the rows."""
    bounds = np.cumsum([0, *(len(rows) for rows in lists)]).astype(np.int64)
    return bounds, np.array([row for rows in lists for row in rows], np.int32)


def ways_of(layers: Sequence[int], related: Lists, mentioned_in: Lists, n_chunks: int) -> WalkGraph:
    """Each relation is numbered by its place in the lists."""
    indptr, indices = flat(related)
    mentions = [[entity for entity, own in enumerate(mentioned_in) if chunk in own] for chunk in range(n_chunks)]
    numbers = np.array(layers, np.int32)
    relation_rows = np.arange(len(indices), dtype=np.int32)
    ends = np.cumsum(np.bincount(numbers), dtype=np.int64)
    arrays = (numbers, ends, indptr, indices, relation_rows, *flat(mentioned_in), *flat(mentions))
    return WalkGraph._make(map(read_only, arrays))


def community_index(
    n_entities: int, levels: Sequence[int], members: Lists, ratings: Sequence[float] = (), order: Sequence[int] = ()
) -> CommunityIndex:
    """Return communities with these members; without ratings, and in the order of their ids, unless that is given."""
    n, numbers = len(levels), np.array(levels, np.int32)
    ranks = np.array(order or range(n), np.int64)
    parts = flat(members)
    return CommunityIndex(numbers, np.array(ratings or [0.0] * n), ranks, *parts, *invert(*parts, numbers, n_entities))


def best_path(graph: nx.Graph, source: int, target: int) -> list[int]:
    """Return a shortest path: of several, one whose weakest edge is heaviest; of these, that of the first rows."""

    def smallest_weight(path: list[int]) -> float:
        return min((graph[a][b]["weight"] for a, b in pairwise(path)), default=0.0)

    if not nx.has_path(graph, source, target):
        return []
    return min(nx.all_shortest_paths(graph, source, target), key=lambda path: (-smallest_weight(path), path))


def order_keys(n_nodes: int, seed: int) -> NDArray[np.uint64]:
    """Return the keys of nodes whose ids are their numbers."""
    return visiting_keys(pa.chunked_array([pa.array(range(n_nodes), pa.int64())]), seed)


def walk_shares(*arguments: Any, **options: Any) -> tuple[IntVector, FloatVector]:
    """Return the chunks that a walk reaches, and its share at each."""
    return all_at_once(pagerank_steps(*arguments, **options))
