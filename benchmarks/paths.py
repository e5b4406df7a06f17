"""Time of the shortest paths of a question, compared with networkit's bidirectional search.

Question vectors lie near entities; key entities are those that `hirag` retrieval takes. Prints a JSON line: CPU
milliseconds a question for all its pairs, the same for networkit, how many of its paths are equal (networkit has no
rule for ties; lengths must agree), and seconds to make networkit's graph, which it needs in memory of its own.

    python benchmarks/paths.py --index DIR [--questions 40]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from hirag_dist.core.graph.shortest_paths import PathFinder
from hirag_dist.core.retrieval.bridge import key_entities
from hirag_dist.core.retrieval.levels import ranked_communities
from hirag_dist.core.retrieval.vector_scoring import nearest_of_all
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store

_TURNS = 5  # of each question; the best counts
_NOISE = 0.8  # length of what is added to a vector of unit length

Chain = Callable[[Sequence[int]], list[list[int]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", required=True)
    parser.add_argument("--questions", type=int, default=40)
    arguments = parser.parse_args()
    snapshot = open_snapshot(Store(arguments.index))
    index = MappedIndex.open(snapshot)
    chains = _chains(index, arguments.questions)
    ours = PathFinder(index.graph, index.components).chain
    started = time.perf_counter()
    theirs = _networkit(index)
    made_s = time.perf_counter() - started
    found, other = [[chain(keys) for keys in chains] for chain in (ours, theirs)]
    pairs = [pair for one, two in zip(found, other, strict=True) for pair in zip(one, two, strict=True)]
    assert all(len(mine) == len(his) for mine, his in pairs)
    print(
        json.dumps(
            {
                "benchmark": "paths",
                "entities": index.graph.n_nodes,
                "edges": len(index.graph.indices) // 2,
                "pairs_a_question": round(len(pairs) / len(chains), 1),
                "hops": round(float(np.mean([len(mine) - 1 for mine, _ in pairs if mine])), 2),
                "cpu_ms": _milliseconds(ours, chains),
                "networkit_cpu_ms": _milliseconds(theirs, chains),
                "networkit_same_path": round(float(np.mean([mine == his for mine, his in pairs])), 2),
                "networkit_graph_s": round(made_s, 2),
            }
        )
    )


def _chains(index: MappedIndex, count: int) -> list[list[int]]:
    """Return the key entities of some questions, in order."""
    rng = np.random.default_rng(0)
    vectors = index.vectors
    chains = []
    for row in rng.integers(len(vectors), size=count).tolist():
        near = vectors[row] + rng.normal(0, _NOISE / vectors.shape[1] ** 0.5, vectors.shape[1])
        query = (near / np.linalg.norm(near)).astype(np.float32)
        rows, scores = nearest_of_all(vectors, query, 20, len(vectors))
        chosen = [one.community for one in ranked_communities(index.communities, rows, scores, "leaf", 10)]
        chains.append([row for row, _ in key_entities(index.communities, chosen, vectors, query, 10)])
    return chains


def _networkit(index: MappedIndex) -> Chain:
    import networkit

    csr, components = index.graph, index.components
    assert components is not None
    heads = np.repeat(np.arange(csr.n_nodes), np.diff(csr.indptr))
    once = heads < csr.indices
    graph: Any = networkit.Graph(csr.n_nodes)
    graph.addEdges((heads[once].astype(np.uint64), csr.indices[once].astype(np.uint64)))

    def chain(keys: Sequence[int]) -> list[list[int]]:
        paths: list[list[int]] = []
        for source, target in pairwise(keys):
            if components[source] != components[target]:
                paths.append([])
                continue
            search = networkit.distance.BidirectionalBFS(graph, source, target, True)
            search.run()
            paths.append([source, *search.getPath(), target])
        return paths

    return chain


def _milliseconds(chain: Chain, chains: Sequence[Sequence[int]]) -> float:
    best = np.full(len(chains), np.inf)
    for _ in range(_TURNS):
        for at, keys in enumerate(chains):
            started = time.process_time()
            chain(keys)
            best[at] = min(best[at], time.process_time() - started)
    return round(float(best.mean()) * 1e3, 3)


if __name__ == "__main__":
    main()
