"""Graphs of numbered entities: as tables, as the build makes them from tables, and the order in which Leiden visits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import networkx as nx
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.graph.csr import build_graph
from hirag_dist.core.graph.leiden import visiting_keys
from hirag_dist.schemas import RELATIONS
from hirag_dist.types import CsrGraph
from tests.table_rows import filled_table

Edges = Sequence[tuple[int, int, float]]


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
