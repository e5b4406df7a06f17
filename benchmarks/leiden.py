"""Quality, speed and repeatability of communities of a million nodes.

Makes weighted graphs with planted communities, degrees and community sizes heavy-tailed, and prints JSON lines: what
this project's Leiden takes flat and hierarchical, and what the stages around it take (graph from tables, the community
table, outlines of reports, lineage), each size in a process of its own so that its peak memory is its own; whether
every community is connected; whether labels are equal when done again, in another process and with another hash seed.
`warm` is an update: edges of 0.1 % of the nodes (`changed`) are replaced, and communities are found from those before.
Of them and of a detection without them on the same graph it prints processor seconds, modularity, and the share of the
communities before whose members, and whose ids, are found again.

    python -m benchmarks leiden [--sizes 100000x500000 1000000x5000000]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.compute.kernels import CpuKernels
from hirag_dist.core.graph.communities import community_table, lineage, warm_start
from hirag_dist.core.graph.csr import build_graph, components, within
from hirag_dist.core.graph.hierarchy_metrics import modularity
from hirag_dist.core.graph.leiden import leiden, visiting_keys
from hirag_dist.core.reports.selection import report_outlines
from hirag_dist.types import CsrGraph

MAX_SIZE = 150
INSIDE = 0.75  # of the edges


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["100000x500000", "1000000x5000000"], help="nodes x edges")
    parser.add_argument("--measure", help=argparse.SUPPRESS)  # the child's part: a file with a graph
    parser.add_argument("--digest", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(Path(arguments.measure), arguments.digest)))
        return
    with tempfile.TemporaryDirectory() as folder:
        for size in arguments.sizes:
            n_nodes, n_edges = map(int, size.split("x"))
            graph = Path(folder) / f"{size}.npz"
            source, target, weight, planted = planted_graph(n_nodes, n_edges)
            np.savez(graph, source=source, target=target, weight=weight, planted=planted)
            here = [sys.executable, __file__, "--measure", str(graph)]
            found = child(here, 0)
            again = child([*here, "--digest"], 1)
            found["equal_in_another_process"] = again["digest"] == found["digest"]
            print(json.dumps({"benchmark": "leiden", "case": f"{size} ours"} | found), flush=True)


def child(command: Sequence[str], hash_seed: int) -> dict[str, Any]:
    """Return the JSON that a process prints."""
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def planted_graph(
    n_nodes: int, n_edges: int, seed: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Return (source, target, weight) of distinct edges, and the community that each node was planted in.

    Endpoints are drawn by a heavy-tailed popularity; those inside a community by the popularity there. About an eighth
    of the edges are drawn twice, or are loops, and fall away.
    """
    random = np.random.default_rng(seed)
    sizes: list[int] = []
    left = n_nodes
    while left:
        sizes.append(max(1, int(min(20 * (random.pareto(1.3) + 1), n_nodes // 20, left))))
        left -= sizes[-1]
    planted = np.repeat(np.arange(len(sizes)), sizes)
    random.shuffle(planted)
    order = np.argsort(planted, kind="stable")
    edge_of = np.searchsorted(planted[order], np.arange(len(sizes) + 1))
    cumulated = np.concatenate([[0.0], np.cumsum((random.pareto(1.6, n_nodes) + 1)[order])])
    n_drawn = round(n_edges * 1.15)
    source = _drawn(cumulated, order, random.random(n_drawn) * cumulated[-1])
    first, last = cumulated[edge_of[planted[source]]], cumulated[edge_of[planted[source] + 1]]
    anywhere = random.random(n_drawn) >= INSIDE
    first[anywhere], last[anywhere] = 0.0, cumulated[-1]
    target = _drawn(cumulated, order, first + random.random(n_drawn) * (last - first))
    key = np.minimum(source, target) * n_nodes + np.maximum(source, target)
    key = np.unique(key[source != target])
    if len(key) > n_edges:
        key = np.sort(random.permutation(key)[:n_edges])
    weight = np.minimum(random.geometric(0.3, len(key)), 50).astype(np.float64)
    return key // n_nodes, key % n_nodes, weight, planted


def _drawn(cumulated: NDArray[np.float64], order: NDArray[np.int64], at: NDArray[np.float64]) -> NDArray[np.int64]:
    return order[np.minimum(np.searchsorted(cumulated[1:], at, side="right"), len(order) - 1)]


def measure(file: Path, only_digest: bool) -> dict[str, Any]:
    """Return one size's figures, seconds by name."""
    data = np.load(file)
    n_nodes, planted = len(data["planted"]), data["planted"]
    seconds: dict[str, float] = {}
    compiled = time.perf_counter()
    pair = CsrGraph(np.arange(3), np.array([1, 0], np.int32), np.ones(2, np.float32), np.zeros(2, np.int32))
    leiden(pair, np.zeros(2, np.int64), 1.0, np.zeros(2, np.uint64))
    seconds["first_use"] = time.perf_counter() - compiled
    ids = pa.chunked_array([pa.array(np.char.mod("%024x", np.arange(n_nodes)))])
    keys = visiting_keys(ids, 0)
    relations = relation_table(ids, data["source"], data["target"], data["weight"])
    graph = timed(seconds, "graph", lambda: build_graph(ids, relations))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    flat = timed(seconds, "flat", lambda: leiden(graph, np.zeros(n_nodes, np.int64), 1.0, keys))
    peak_flat = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    levels = timed(seconds, "hierarchical", lambda: CpuKernels().leiden(graph, MAX_SIZE, 1.0, keys))
    digest = hashlib.sha256(b"".join(labels.tobytes() for labels in [flat, *levels])).hexdigest()[:16]
    if only_digest:
        return {"digest": digest}
    table = timed(seconds, "table", lambda: community_table(levels, graph, ids))
    other = CpuKernels().leiden(graph, MAX_SIZE, 1.0, visiting_keys(ids, 1))
    new = community_table(other, graph, ids)
    continued = timed(seconds, "lineage", lambda: lineage(table, new))
    degree = np.diff(graph.indptr)
    outlines = timed(seconds, "outlines", lambda: report_outlines(table, ids, relations, degree, 666, 256))
    again = leiden(graph, np.zeros(n_nodes, np.int64), 1.0, keys)
    return {
        "nodes": n_nodes,
        "edges": len(data["source"]),
        "seconds": {name: round(value, 2) for name, value in seconds.items()},
        "peak_mb": {
            "before": round(before / 1024),
            "flat": round(peak_flat / 1024),
            "all": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        },
        "modularity": round(modularity(graph, flat, 1.0), 5),
        "planted_modularity": round(modularity(graph, planted, 1.0), 5),
        "communities": int(flat.max()) + 1,
        "levels": [int(labels.max()) + 1 for labels in levels],
        "largest_leaf": int(table.filter(table["is_leaf"])["n_entities"].to_numpy().max()),
        "connected": all(connected(graph, labels) for labels in [flat, *levels]),
        "equal_twice": bool(np.array_equal(flat, again)),
        "continued_from_another_seed": len(continued),
        "reports_above_trees": outlines.above.num_rows,
        "warm": updated(data, ids, table),
        "digest": digest,
    }


def relation_table(
    ids: pa.ChunkedArray, source: NDArray[np.int64], target: NDArray[np.int64], weight: NDArray[np.float64]
) -> pa.Table:
    """Return the columns of RELATIONS that the stages of communities read."""
    return pa.table(
        {
            "relation_id": np.char.mod("%024x", np.arange(len(source))),
            "source_id": ids.combine_chunks().take(pa.array(source)),
            "target_id": ids.combine_chunks().take(pa.array(target)),
            "weight": weight,
        }
    )


def updated(data: Any, ids: pa.ChunkedArray, table: pa.Table) -> dict[str, Any]:
    """Return the figures of an update that replaces edges of few nodes, from a warm start and without one."""
    random = np.random.default_rng(5)
    source, target, weight = data["source"], data["target"].copy(), data["weight"]
    moved = random.choice(len(source), len(ids) // 2000, replace=False)  # both ends of an edge change
    old_ends = target[moved]
    near = target[random.integers(len(target), size=len(moved))]
    target[moved] = np.where(near == source[moved], old_ends, near)
    changed = np.unique(np.concatenate([source[moved], old_ends, target[moved]]))
    graph = build_graph(ids, relation_table(ids, source, target, weight))
    start = warm_start(table, pa.chunked_array([ids.combine_chunks().take(pa.array(changed))]), ids)
    keys = visiting_keys(ids, 0)
    found: dict[str, Any] = {"changed": len(changed)}
    for name, warm in (("warm", start), ("cold", None)):
        started = time.process_time()
        levels = CpuKernels().leiden(graph, MAX_SIZE, 1.0, keys, warm)
        seconds = time.process_time() - started
        new = community_table(levels, graph, ids)
        same = np.isin(table["community_id"].to_numpy(), new["community_id"].to_numpy())  # level and members
        kept_ids = community_table(levels, graph, ids, table)["community_id"].to_numpy()
        found[name] = {
            "processor_s": round(seconds, 2),
            "modularity": round(modularity(graph, levels[0], 1.0), 5),
            "same_members": round(float(same.mean()), 4),
            "same_id": round(float(np.isin(table["community_id"].to_numpy(), kept_ids).mean()), 4),
            "connected": all(connected(graph, labels) for labels in levels),
        }
    return found


def timed(seconds: dict[str, float], name: str, work: Any) -> Any:
    """Return the result of `work`, and note its duration."""
    started = time.perf_counter()
    found = work()
    seconds[name] = time.perf_counter() - started
    return found


def connected(graph: CsrGraph, labels: NDArray[np.int64]) -> bool:
    """Return whether the nodes of each label are connected by edges among them."""
    parts = components(within(graph, labels))[labels >= 0]
    return len(np.unique(parts)) == len(np.unique(labels[labels >= 0]))


if __name__ == "__main__":
    main()
