"""Indexes built by hand for the tests: a tiny one described in words, and a generated one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from hirag_dist import schemas
from tests.table_rows import filled_table

Tables = dict[str, pa.Table]

NASTY = {
    "a": '</script><script>alert("1")</script>',
    "b": 'O\'Brien & "Söhne" <b>',
    "c": "🦊 fox\u2028]]>",
    "d": "鲁迅",
    "e": "محمود درويش",
    "S": "con\x00trol\x07 \x1b[31m",
}


def _entity(name: str, layer: int = 0, kind: str = "person") -> dict[str, Any]:
    told = {"name": name, "type": kind, "description": f"About {name}.", "described": True, "n_mentions": 1}
    return {"entity_id": f"{layer}:{name}", "layer": layer, "chunk_ids": [] if layer else ["c0"]} | told


def _relation(source: str, target: str, kind: str = "extracted", weight: float = 1.0) -> dict[str, Any]:
    own = {"relation_id": f"{kind}:{source}:{target}", "source_id": source, "target_id": target, "kind": kind}
    return own | {"description": "knows", "weight": weight, "chunk_ids": ["c0"] if kind == "extracted" else []}


def _community(
    name: str, level: int, members: list[str], parent: str | None = None, leaf: bool = True
) -> dict[str, Any]:
    counts = {"n_entities": len(members), "n_relations": 2 * len(members) - 1}
    return {"community_id": name, "level": level, "parent_id": parent, "is_leaf": leaf, "entity_ids": members} | counts


def _layer(layer: int, n_entities: int, n_clusters: int, sparsity: float | None, decision: str) -> dict[str, Any]:
    sizes = {"median_cluster": 2.0, "largest_cluster": 3, "n_components": n_clusters} if n_clusters else {}
    own = {"layer": layer, "n_entities": n_entities, "n_clusters": n_clusters, "n_summaries": int(not layer)}
    return own | {"sparsity": sparsity, "decision": decision} | sizes


def _usage(stage: str, model: str, calls: int, cost: float) -> dict[str, Any]:
    numbers = {"ledger_hits": 1, "input_tokens": 10, "cached_tokens": 2, "output_tokens": 3, "calls": calls}
    return {"stage": stage, "role": "extract", "endpoint": "llm", "model": model, "cost_usd": cost} | numbers


def _report(community: str, level: int, title: str) -> dict[str, Any]:
    finding = {"summary": "They meet", "explanation": "Often.", "entity_ids": ["0:a"], "relation_ids": []}
    told = {"title": title, "summary": "Three friends.", "rating_explanation": "Much goes on.", "findings": [finding]}
    return {"community_id": community, "level": level, "rating": 7.5, "origin": "model"} | told


def tiny_index(names: Mapping[str, str] | None = None) -> Tables:
    """A triangle a-b-c with a tail d, an isolated e, and a summary S over a and b; `names` replaces their names.

    a and b also know each other a second time, so one pair has two relations; one relation leads nowhere. Community
    big holds a, b, c, d, S and splits into left (a, b, S) and right (c, d); e is alone in lone. big and left are the
    ones with reports.
    """
    entities = [_entity(name) for name in "abcde"] + [_entity("S", 1, "concept")]
    for row in entities:
        row["name"] = (names or {}).get(row["name"], row["name"])
    relations = [
        _relation("0:a", "0:b", weight=3.0),
        _relation("0:b", "0:a"),
        _relation("0:a", "0:c"),
        _relation("0:b", "0:c"),
        _relation("0:c", "0:d"),
        _relation("0:a", "1:S", "summary"),
        _relation("0:b", "1:S", "summary"),
        _relation("0:a", "0:nobody"),
    ]
    members = [("k0", "0:a"), ("k0", "0:b"), ("k1", "0:c"), ("k1", "0:d"), ("k1", "0:e")]
    clusters = [
        {"cluster_id": cluster, "layer": 0, "entity_id": entity, "responsibility": 1.0, "best": True}
        for cluster, entity in members
    ]
    communities = [
        _community("big", 0, ["0:a", "0:b", "0:c", "0:d", "1:S"], leaf=False),
        _community("lone", 0, ["0:e"]),
        _community("left", 1, ["0:a", "0:b", "1:S"], "big"),
        _community("right", 1, ["0:c", "0:d"], "big"),
    ]
    document = {"document_id": "d0", "uri": "d.txt", "title": "D", "n_chars": 4, "text": "text"}
    chunk = {"chunk_id": "c0", "document_id": "d0", "end": 4, "n_tokens": 1, "text": "text"}
    layers = [_layer(0, 5, 2, 0.6, "go on"), _layer(1, 1, 0, None, "one entity is left")]
    usage = [_usage("extract", "m", 5, 0.25), _usage("report", "m", 2, 0.5), _usage("extract", "n", 1, 0.125)]
    return {
        "documents": filled_table(schemas.DOCUMENTS, [document]),
        "chunks": filled_table(schemas.CHUNKS, [chunk]),
        "entities": filled_table(schemas.ENTITIES, entities),
        "relations": filled_table(schemas.RELATIONS, relations),
        "clusters": filled_table(schemas.CLUSTERS, clusters),
        "layers": filled_table(schemas.LAYERS, layers),
        "communities": filled_table(schemas.COMMUNITIES, communities),
        "reports": filled_table(schemas.REPORTS, [_report("big", 0, "Friends"), _report("left", 1, "The two")]),
        "usage": filled_table(schemas.USAGE, usage),
    }


def empty_index() -> Tables:
    """Every table, without a row."""
    names = [name for name in dir(schemas) if name.isupper() and not name.startswith("_")]
    return {name.lower(): getattr(schemas, name).empty_table() for name in names}


def synthetic_index(n_entities: int, seed: int = 0) -> Tables:
    """Return a random index: three layers, hubs, isolated entities, communities of two levels, reports and a bill."""
    rng = np.random.default_rng(seed)
    counts = [n_entities, n_entities // 9, n_entities // 60]
    layers = np.repeat([0, 1, 2], counts).tolist()
    ids = [f"e{row:06d}" for row in range(len(layers))]
    kinds = rng.choice(("person", "organization", "location", "unknown"), len(ids)).tolist()
    entities = [
        _entity(f"Name {row}", layer, kind) | {"entity_id": ids[row], "chunk_ids": [] if layer else [f"c{row % 300}"]}
        for row, (layer, kind) in enumerate(zip(layers, kinds, strict=True))
    ]
    ends = (len(ids) * rng.random((3 * len(ids), 2)) ** (1, 3)).astype(int)  # the first ones are hubs
    relations = [
        _relation(ids[low], ids[high], "summary" if layers[high] else "extracted", float(low % 7 + 1))
        for low, high in sorted({(min(pair), max(pair)) for pair in ends.tolist() if len(set(pair)) == 2})
    ]
    leaves = rng.integers(0, 60, len(ids))
    communities = [
        _community(f"{level}-{group}", level, members, f"0-{group // 4}" if level else None, leaf=level == 1)
        for level, groups in enumerate((leaves // 4, leaves))
        for group in range(groups.max() + 1)
        if (members := [ids[row] for row in np.flatnonzero(groups == group)])
    ]
    clusters = (
        {"cluster_id": f"g{layers[row]}", "layer": layers[row], "entity_id": own} for row, own in enumerate(ids)
    )
    documents = ({"document_id": f"d{at}", "uri": f"d{at}.txt", "title": f"D {at}"} for at in range(12))
    chunks = ({"chunk_id": f"c{at}", "document_id": f"d{at % 12}", "end": 4, "text": "text"} for at in range(300))
    return {
        "documents": filled_table(schemas.DOCUMENTS, documents),
        "chunks": filled_table(schemas.CHUNKS, chunks),
        "entities": filled_table(schemas.ENTITIES, entities),
        "relations": filled_table(schemas.RELATIONS, relations),
        "clusters": filled_table(schemas.CLUSTERS, clusters),
        "layers": filled_table(schemas.LAYERS, (_layer(at, n, 40, 0.99, "go on") for at, n in enumerate(counts))),
        "communities": filled_table(schemas.COMMUNITIES, sorted(communities, key=lambda row: str(row["community_id"]))),
        "reports": filled_table(schemas.REPORTS, (_report(f"1-{n}", 1, f"Title {n}") for n in range(0, 60, 2))),
        "usage": filled_table(schemas.USAGE, [_usage("extract", "m", 612, 1.93), _usage("report", "n", 260, 3.77)]),
    }
