"""Share of the communities of an index that a removed document leaves as they are.

Reads a snapshot's graph of layer 0. Every `--step`-th document is left out by itself, with the entities and relations
that only its chunks mention, and communities are found again: `rows`, nodes in an order shuffled by row; `ids`, by a
hash of the id, as builds do; `warm`, from those before, as updates do. Prints a JSON line for each: the mean and the
smallest share of communities with the same members, the mean best Jaccard index weighted by size, and modularity.

    python benchmarks/community_stability.py INDEX/snapshots/ID [--step 6]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hirag_dist.compute.cpu import CpuKernels
from hirag_dist.core.graph.communities import community_table
from hirag_dist.core.graph.csr import build_graph
from hirag_dist.core.graph.leiden import visiting_keys
from hirag_dist.core.graph.modularity import modularity
from hirag_dist.core.graph.warm_start import warm_start

MAX_SIZE = 150
WAYS = ("rows", "ids", "warm")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("snapshot", type=Path)
    parser.add_argument("--step", type=int, default=6, help="every so many documents, one is left out")
    arguments = parser.parse_args()
    chunks, entities, relations = (
        pq.read_table(arguments.snapshot / f"{name}.parquet") for name in ("chunks", "entities", "relations")
    )
    entities = entities.filter(pc.equal(entities["layer"], 0)).sort_by("entity_id")
    relations = relations.filter(pc.equal(relations["kind"], "extracted")).sort_by("relation_id")
    before = {way: detected(entities, relations, way)[0] for way in WAYS[:2]}
    before["warm"] = before["ids"]
    found: dict[str, list[tuple[float, ...]]] = {way: [] for way in WAYS}
    for document in sorted(set(chunks["document_id"].to_pylist()))[:: arguments.step]:
        own = set(chunks.filter(pc.equal(chunks["document_id"], document))["chunk_id"].to_pylist())
        left, gone = divided(entities, own)[0], divided(relations, own)
        ends = pa.concat_arrays([gone[1][name].combine_chunks() for name in ("source_id", "target_id")])
        for way in WAYS:
            start = (before["warm"], pa.chunked_array([pc.unique(ends)])) if way == "warm" else None
            table, quality = detected(left, gone[0], way, start)
            found[way].append((*survival(before[way], table), quality))
    for way, rows in found.items():
        mean, lowest = np.mean(rows, axis=0), np.min(rows, axis=0)
        line = {
            "same_members": round(mean[0], 4),
            "same_members_min": round(lowest[0], 4),
            "jaccard": round(mean[1], 4),
            "modularity": round(mean[2], 4),
        }
        print(json.dumps({"benchmark": "community_stability", "case": way, "documents": len(rows)} | line))


def divided(table: pa.Table, own: set[str]) -> tuple[pa.Table, pa.Table]:
    """Return the rows that other chunks mention too, and those that only chunks of `own` do."""
    kept = pa.array([not own.issuperset(chunks) for chunks in table["chunk_ids"].to_pylist()])
    return table.filter(kept), table.filter(pc.invert(kept))


def detected(
    entities: pa.Table, relations: pa.Table, way: str, start: tuple[pa.Table, pa.ChunkedArray] | None = None
) -> tuple[pa.Table, float]:
    """Return the communities and the modularity of level 0."""
    ids = entities["entity_id"]
    graph = build_graph(ids, relations)
    keys: NDArray[np.uint64] = visiting_keys(ids, 0)
    if way == "rows":
        keys = np.random.default_rng(0).permutation(len(ids)).astype(np.uint64)
    levels = CpuKernels().leiden(graph, MAX_SIZE, 1.0, keys, None if start is None else warm_start(*start, ids))
    return community_table(levels, graph, ids), modularity(graph, levels[0])


def survival(before: pa.Table, after: pa.Table) -> tuple[float, float]:
    """Return the share of communities with the same level and members, and the mean best Jaccard index by size."""
    old, new = ([set(own) for own in table["entity_ids"].to_pylist()] for table in (before, after))
    same = np.isin(before["community_id"].to_numpy(), after["community_id"].to_numpy())
    of = communities_of(new)
    best = []
    for own in old:
        near = {at for entity in own for at in of.get(entity, ())}
        best.append(max((len(own & new[at]) / len(own | new[at]) for at in near), default=0.0))
    return float(same.mean()), float(np.average(best, weights=[len(own) for own in old]))


def communities_of(communities: Sequence[set[str]]) -> dict[str, set[int]]:
    """Return the numbers of the communities that each entity is in."""
    found: dict[str, set[int]] = {}
    for at, own in enumerate(communities):
        for entity in own:
            found.setdefault(entity, set()).add(at)
    return found


if __name__ == "__main__":
    main()
