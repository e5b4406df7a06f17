"""Path lengths, coverage and modularity, on graphs counted by hand and against networkx."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

from hirag_dist import schemas
from hirag_dist.core.graph.csr import build_graph, subgraph
from hirag_dist.core.graph.hierarchy_metrics import PathLengthSample, covered, modularity, path_lengths
from tests.core.graphs import csr
from tests.table_rows import filled_table


def entity_table(chunks: dict[str, list[str]], layers: dict[str, int] | None = None) -> pa.Table:
    rows = ({"entity_id": own, "layer": (layers or {}).get(own, 0), "chunk_ids": chunks[own]} for own in chunks)
    return filled_table(schemas.ENTITIES, rows)


def relation_table(pairs: list[tuple[str, str]], kind: str = "extracted") -> pa.Table:
    rows = ({"source_id": a, "target_id": b, "kind": kind, "weight": 1.0} for a, b in pairs)
    return filled_table(schemas.RELATIONS, rows)


# a-b-c-d-e a path, f alone; neighbours share a chunk. A summary S over a and e, and T over S and f.
CHUNKS = {"a": ["1"], "b": ["1", "2"], "c": ["2", "3"], "d": ["3", "4"], "e": ["4"], "f": ["9"], "S": [], "T": []}
ENTITIES = entity_table(CHUNKS, {"S": 1, "T": 2})
UPWARD = relation_table([("a", "S"), ("S", "e"), ("S", "T"), ("T", "f")], "summary")
RELATIONS = pa.concat_tables([relation_table([("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")]), UPWARD])


def measured(entities: pa.Table, relations: pa.Table) -> PathLengthSample:
    base = np.flatnonzero(entities["layer"].to_numpy() == 0)
    graph = build_graph(entities["entity_id"], relations)
    return path_lengths(entities["chunk_ids"].take(pa.array(base)), base, subgraph(graph, base), graph)


def test_hops_between_entities_that_share_no_chunk() -> None:
    """Of 15 pairs 4 share a chunk. In layer 0: ac bd ce 2 hops, ad be 3, ae 4, five with f none.

    With S: ae 2, ad and be stay 3. Over T, f is 3 from a and e, 4 from b and d, 5 from c.
    """
    found = measured(ENTITIES, RELATIONS)
    assert found == PathLengthSample(
        pairs=11,
        sources=6,
        exact=True,
        flat_unreachable=5,
        unreachable=0,
        flat_mean=pytest.approx((3 * 2 + 2 * 3 + 4) / 6),
        mean_of_flat=pytest.approx((4 * 2 + 2 * 3) / 6),
        mean=pytest.approx((4 * 2 + 2 * 3 + 3 + 3 + 4 + 4 + 5) / 11),
        flat_hops=(0, 0, 3, 2, 1),
        hops=(0, 0, 4, 4, 2, 1),
    )


@pytest.mark.parametrize("n_entities", [0, 1])
def test_no_pair_has_no_mean(n_entities: int) -> None:
    found = measured(ENTITIES.slice(0, n_entities), RELATIONS)
    assert (found.pairs, found.mean, found.flat_mean, found.hops) == (0, None, None, ())


def random_case(n_base: int, seed: int) -> tuple[pa.Table, pa.Table, nx.Graph, dict[str, list[str]]]:
    random = np.random.default_rng(seed)
    names = [f"e{number:04d}" for number in range(n_base)]
    chunks = {name: [f"c{chunk}" for chunk in set(random.integers(0, n_base // 3, 2).tolist())] for name in names}
    summaries = [f"s{number:03d}" for number in range(n_base // 10)]
    graph = nx.gnm_random_graph(n_base, n_base, seed=seed)
    pairs = [(names[a], names[b]) for a, b in graph.edges]
    upward = [(name, summaries[int(random.integers(len(summaries)))]) for name in names[: n_base // 2]]
    entities = entity_table(chunks | {name: [] for name in summaries}, dict.fromkeys(summaries, 1))
    relations = pa.concat_tables([relation_table(pairs), relation_table(upward, "summary")])
    return entities, relations, nx.Graph([*pairs, *upward]), chunks


@pytest.mark.parametrize("seed", range(2))
def test_every_pair_agrees_with_networkx(seed: int) -> None:
    entities, relations, graph, chunks = random_case(90, seed)
    graph.add_nodes_from(chunks)
    distances = dict(nx.all_pairs_shortest_path_length(graph))
    expected = Counter(
        distances[a].get(b) for a, b in combinations(sorted(chunks), 2) if not set(chunks[a]) & set(chunks[b])
    )
    found = measured(entities, relations)
    assert found.pairs == expected.total()
    assert found.unreachable == expected[None]
    assert found.hops == tuple(expected[hops] for hops in range(len(found.hops)))


def test_coverage_is_the_share_with_a_summary_above() -> None:
    """Layer 0: a, e and, over T two layers up, f; layer 1: S; nothing is above T."""
    assert covered(ENTITIES, RELATIONS) == [pytest.approx(3 / 6), 1.0, None]
    assert covered(ENTITIES.slice(0, 6), RELATIONS) == [None]
    assert covered(ENTITIES.slice(0, 0), RELATIONS) == []


@pytest.mark.parametrize("resolution", [0.5, 1.0, 2.0])
def test_modularity_is_that_of_networkx(resolution: float) -> None:
    random = np.random.default_rng(1)
    graph = nx.gnm_random_graph(40, 120, seed=2)
    for _, _, data in graph.edges(data=True):
        data["weight"] = float(random.integers(1, 9))
    labels = random.integers(0, 6, 40)
    parts = [set(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    expected = nx.community.modularity(graph, parts, resolution=resolution)
    assert modularity(csr(graph), labels, resolution) == pytest.approx(expected, abs=1e-12)


def test_a_node_without_a_label_is_alone_and_no_edge_has_no_modularity() -> None:
    graph = csr(nx.cycle_graph(6))
    assert modularity(graph, np.full(6, -1)) == modularity(graph, np.arange(6))
    assert modularity(csr(nx.empty_graph(3)), np.arange(3)) == 0.0
