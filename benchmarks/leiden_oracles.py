"""One other implementation on a graph that `leiden.py` made: seconds and modularity as a JSON line.

Run by an interpreter that has it; nothing of this project is imported, since it need not be there.

    PYTHON benchmarks/leiden_oracles.py igraph|leidenalg|networkit|graspologic GRAPH.npz
"""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any

import numpy as np

ROUNDS = 2  # igraph's and leidenalg's default


def main() -> None:
    name, file = sys.argv[1:]
    data = np.load(file)
    n_nodes = len(data["planted"])
    source, target, weight = data["source"], data["target"], data["weight"]
    try:
        seconds, labels = globals()[f"by_{name}"](n_nodes, source, target, weight)
    except ImportError:
        print(json.dumps({"not_done": f"{name} is not installed there"}))
        return
    total = 2 * weight.sum()
    strength = np.bincount(labels[source], weights=weight, minlength=labels.max() + 1)
    strength += np.bincount(labels[target], weights=weight, minlength=labels.max() + 1)
    inside = 2 * weight[labels[source] == labels[target]].sum()
    quality = inside / total - ((strength / total) ** 2).sum()
    found = {
        "seconds": round(seconds, 2),
        "modularity": round(float(quality), 5),
        "communities": len(np.unique(labels)),
    }
    print(json.dumps(found))


def by_igraph(n: int, source: Any, target: Any, weight: Any) -> tuple[float, Any]:
    import igraph

    igraph.set_random_number_generator(random.Random(0))
    graph = igraph.Graph(n=n, edges=list(zip(source.tolist(), target.tolist(), strict=True)))
    weights = weight.tolist()
    started = time.perf_counter()
    found = graph.community_leiden("modularity", weights=weights, n_iterations=ROUNDS)
    return time.perf_counter() - started, np.array(found.membership)


def by_leidenalg(n: int, source: Any, target: Any, weight: Any) -> tuple[float, Any]:
    import igraph
    import leidenalg

    graph = igraph.Graph(n=n, edges=list(zip(source.tolist(), target.tolist(), strict=True)))
    weights = weight.tolist()
    started = time.perf_counter()
    kind = leidenalg.ModularityVertexPartition
    found = leidenalg.find_partition(graph, kind, weights=weights, seed=0, n_iterations=ROUNDS)
    return time.perf_counter() - started, np.array(found.membership)


def by_networkit(n: int, source: Any, target: Any, weight: Any) -> tuple[float, Any]:
    import networkit

    networkit.setSeed(0, False)
    networkit.setNumberOfThreads(1)
    graph = networkit.GraphFromCoo((weight, (source, target)), n=n, weighted=True, directed=False)
    started = time.perf_counter()
    method = networkit.community.ParallelLeiden(graph, iterations=ROUNDS)
    method.run()
    return time.perf_counter() - started, np.array(method.getPartition().getVector())


def by_graspologic(n: int, source: Any, target: Any, weight: Any) -> tuple[float, Any]:
    import graspologic_native
    from scipy.sparse import coo_array

    ends = np.concatenate([source, target]), np.concatenate([target, source])
    graph = coo_array((np.concatenate([weight, weight]), ends), shape=(n, n)).tocsr()
    started = time.perf_counter()
    _, found = graspologic_native.leiden_csr(
        graph.indptr.astype(np.int64), graph.indices.astype(np.int32), graph.data, n, iterations=ROUNDS, seed=0
    )
    seconds = time.perf_counter() - started
    return seconds, np.fromiter((found[node] for node in range(n)), np.int64, n)


if __name__ == "__main__":
    main()
