"""Eq. 12–16 as a whole, on random graphs: what the compiled chain gives is what the paper's formulas give, slowly.

The slow version knows nothing of rows in arrays: dictionaries, all members of a community sorted, all shortest paths
of networkx written out. Vectors hold small integers, so that ties are many and sums exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hirag_dist.core.arrays import all_at_once
from hirag_dist.core.graph.csr import build_graph, components
from hirag_dist.core.graph.shortest_paths import PathFinder
from hirag_dist.core.retrieval.bridge import Parallel, bridge_relations, key_entity_steps
from hirag_dist.core.retrieval.entity_linking import joined_in_order
from hirag_dist.core.retrieval.levels import nearest_of_all, ranked_communities
from hirag_dist.storage.serving.writer import parallel_relations
from tests.core.graphs import best_path, community_index, relation_table


@dataclass
class World:
    """Entities are numbers, relations (source, target, weight), communities (level, members, rating), nested."""

    n_entities: int
    relations: list[tuple[int, int, float]]
    communities: list[tuple[int, list[int], float]]
    vectors: NDArray[np.float32]
    query: NDArray[np.float32]
    n_local: int
    n_keys: int
    n_communities: int
    level: str
    named: list[int]

    def similarity(self, entity: int) -> float:
        return float(self.vectors[entity].astype(np.float64) @ self.query.astype(np.float64))


@dataclass
class Found:
    local: list[int]
    communities: list[int]
    keys: list[int]
    paths: list[list[int]]
    triples: list[int]


def slow(world: World) -> Found:
    entities = range(world.n_entities)
    local = sorted(entities, key=lambda entity: (-world.similarity(entity), entity))[: world.n_local]  # Eq. 12
    hits: dict[int, list[float]] = {}
    for entity in local:  # Eq. 13
        holders = [at for at, (_, members, _) in enumerate(world.communities) if entity in members]
        holders.sort(key=lambda at: world.communities[at][0])
        if world.level == "leaf":
            holders = holders[-1:]
        elif world.level != "all":
            holders = [at for at in holders if world.communities[at][0] <= int(world.level)][-1:]
        for at in holders:
            hits.setdefault(at, []).append(world.similarity(entity))
    ranked = sorted(hits, key=lambda at: (-len(hits[at]), -max(hits[at]), -world.communities[at][2], -at))
    chosen = ranked[: world.n_communities]
    keys = list(world.named)  # what the question names is joined first
    for at in chosen:  # Eq. 14
        members = sorted(world.communities[at][1], key=lambda entity: (-world.similarity(entity), entity))
        keys += [entity for entity in members[: world.n_keys] if entity not in keys]
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(entities)
    for source, target, weight in world.relations:
        if source != target:
            before = graph.get_edge_data(source, target, {"weight": 0.0})["weight"]
            graph.add_edge(source, target, weight=before + weight)
    paths = [best_path(graph, source, target) for source, target in pairwise(keys)]  # Eq. 15
    nodes = {entity for path in paths for entity in path} | set(keys)
    triples = [  # Eq. 16
        at for at, (source, target, _) in enumerate(world.relations) if source != target and {source, target} <= nodes
    ]
    return Found(local, chosen, keys, paths, triples)


def fast(world: World) -> Found:
    ids, relations = relation_table(world.n_entities, world.relations)
    graph = build_graph(ids, relations)
    ends = np.array([relation[:2] for relation in world.relations], np.int32).reshape(-1, 2)
    weights = np.array([relation[2] for relation in world.relations], np.float64)
    levels, members, ratings = zip(*world.communities, strict=True)
    order = range(len(levels))[::-1]  # the last community has the lowest id
    index = community_index(world.n_entities, levels, members, ratings, order)
    rows, scores = nearest_of_all(world.vectors, world.query, world.n_local, world.n_entities)
    ranked = ranked_communities(index, rows, scores, world.level, world.n_communities)
    chosen = [one.community for one in ranked]
    named = [(row, world.similarity(row)) for row in world.named]
    own = all_at_once(key_entity_steps(index, chosen, world.vectors, world.query, world.n_keys))
    keys = [row for row, _ in joined_in_order(named, own)]
    paths = all_at_once(PathFinder(graph, components(graph)).chain_steps(keys))
    nodes = np.array(sorted({*keys, *(row for path in paths for row in path)}), np.int64)
    triples = bridge_relations(graph, Parallel(*parallel_relations(ends, weights)), nodes)
    return Found(rows.tolist(), chosen, keys, paths, triples.tolist())


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Sparse and dense graphs, loops and parallel relations; up to four levels of nested communities."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(1, 40))
    share = draw(st.sampled_from([0.3, 1.0, 3.0]))
    relations = [(int(a), int(b), float(rng.integers(1, 4))) for a, b in rng.integers(0, n, (int(share * n), 2))]
    communities: list[tuple[int, list[int], float]] = []

    def divide(level: int, inside: NDArray[np.int64]) -> None:
        labels = rng.integers(0, 3, len(inside))
        for label in range(3):
            part = np.sort(inside[labels == label])
            if len(part):
                communities.append((level, part.tolist(), float(rng.integers(0, 3))))
                if level < 3 and len(part) > 2 and rng.random() < 0.7:
                    divide(level + 1, part)

    divide(0, np.arange(n))
    return World(
        n,
        relations,
        [communities[at] for at in rng.permutation(len(communities))],
        rng.integers(-2, 3, (n, 4)).astype(np.float32),
        rng.integers(-2, 3, 4).astype(np.float32),
        draw(st.integers(1, 12)),
        draw(st.integers(1, 6)),
        draw(st.integers(1, 8)),
        draw(st.sampled_from(["leaf", "all", "0", "1", "2", "9"])),
        rng.permutation(n)[: int(rng.choice([0, 0, 2, 3]))].tolist() if n > 2 else [],
    )


@settings(deadline=None, max_examples=40, derandomize=True)
@given(worlds())
def test_the_whole_chain_is_the_papers(world: World) -> None:
    assert fast(world) == slow(world)
