"""Indexes built by hand for the tests: a tiny one described in words, and a generated one with heavy tails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from hirag_dist import schemas

Tables = dict[str, pa.Table]
Rows = list[dict[str, Any]]

NASTY = {
    "a": '</script><script>alert("1")</script>',
    "b": 'O\'Brien & "Söhne" <b>',
    "c": "🦊 fox\u2028]]>",
    "d": "鲁迅",
    "e": "محمود درويش",
    "S": "con\x00trol\x07 \x1b[31m",
}


def _rows(schema: pa.Schema, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema)


def _entity(name: str, layer: int = 0, kind: str = "person") -> dict[str, Any]:
    return {
        "entity_id": f"{layer}:{name}",
        "layer": layer,
        "name": name,
        "type": kind,
        "description": f"About {name}.",
        "described": True,
        "n_mentions": 1,
        "chunk_ids": [] if layer else ["c0"],
    }


def _relation(source: str, target: str, kind: str = "extracted", weight: float = 1.0) -> dict[str, Any]:
    return {
        "relation_id": f"{kind}:{source}:{target}",
        "source_id": source,
        "target_id": target,
        "kind": kind,
        "layer": 0,
        "description": "knows",
        "weight": weight,
        "chunk_ids": ["c0"] if kind == "extracted" else [],
    }


def _community(
    name: str, level: int, members: list[str], parent: str | None = None, leaf: bool = True
) -> dict[str, Any]:
    return {
        "community_id": name,
        "level": level,
        "parent_id": parent,
        "is_leaf": leaf,
        "n_entities": len(members),
        "n_relations": 2 * len(members) - 1,
        "entity_ids": members,
    }


def _layer(layer: int, n_entities: int, n_clusters: int, sparsity: float | None, decision: str) -> dict[str, Any]:
    return {
        "layer": layer,
        "n_entities": n_entities,
        "n_clusters": n_clusters,
        "median_cluster": 2.0 if n_clusters else 0.0,
        "largest_cluster": 3 if n_clusters else 0,
        "sparsity": sparsity,
        "change_rate": None,
        "n_components": n_clusters,
        "n_summaries": 1 if not layer else 0,
        "n_attached": 0,
        "n_unattached": 0,
        "decision": decision,
    }


def _usage(stage: str, model: str, calls: int, cost: float) -> dict[str, Any]:
    numbers = {"ledger_hits": 1, "input_tokens": 10, "cached_tokens": 2, "output_tokens": 3, "rejected": 0}
    numbers |= {"rate_limited": 0, "failed": 0}
    return {
        "stage": stage,
        "role": "extract",
        "endpoint": "llm",
        "model": model,
        "calls": calls,
        "cost_usd": cost,
    } | numbers


def _report(community: str, level: int, title: str) -> dict[str, Any]:
    finding = {"summary": "They meet", "explanation": "Often.", "entity_ids": ["0:a"], "relation_ids": []}
    return {
        "community_id": community,
        "level": level,
        "title": title,
        "summary": "Three friends.",
        "rating": 7.5,
        "rating_explanation": "Much goes on.",
        "findings": [finding],
        "origin": "model",
        "n_dropped_references": 0,
    }


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
    document = {
        "document_id": "d0",
        "uri": "d.txt",
        "record": 0,
        "title": "D",
        "source_ids": [],
        "labels": [],
        "n_chars": 4,
        "text": "text",
    }
    chunk = {"chunk_id": "c0", "document_id": "d0", "position": 0, "start": 0, "end": 4, "n_tokens": 1, "text": "text"}
    layers = [_layer(0, 5, 2, 0.6, "go on"), _layer(1, 1, 0, None, "one entity is left")]
    usage = [_usage("extract", "m", 5, 0.25), _usage("report", "m", 2, 0.5), _usage("extract", "n", 1, 0.125)]
    return {
        "documents": _rows(schemas.DOCUMENTS, [document]),
        "chunks": _rows(schemas.CHUNKS, [chunk]),
        "entities": _rows(schemas.ENTITIES, entities),
        "relations": _rows(schemas.RELATIONS, relations),
        "clusters": _rows(schemas.CLUSTERS, clusters),
        "layers": _rows(schemas.LAYERS, layers),
        "communities": _rows(schemas.COMMUNITIES, communities),
        "reports": _rows(schemas.REPORTS, [_report("big", 0, "Friends"), _report("left", 1, "The two")]),
        "usage": _rows(schemas.USAGE, usage),
    }


def empty_index() -> Tables:
    """Every table, without a row."""
    names = [name for name in dir(schemas) if name.isupper() and not name.startswith("_")]
    return {name.lower(): getattr(schemas, name).empty_table() for name in names}


_WORDS = """
amber anchor arctic atlas aurora basin beacon birch canyon cedar cobalt comet copper coral crane delta drift
ember falcon fjord forge garnet glacier grove harbor hazel heron indigo iris ivory jade juniper kestrel lagoon
lantern larch linen lotus maple marble meadow mercury mica mosaic nectar north oak obsidian olive onyx opal
orchid osprey pearl pine plume prairie quartz quill raven reef ridge river saffron sage scarlet sequoia shale
sierra silver slate solstice sparrow spruce stone summit tamarind thistle thunder tidal topaz tundra umber
valley velvet violet walnut willow winter wren yarrow zephyr zinc
"""
WORDS = tuple(_WORDS.split())
KINDS = ("person", "organization", "location", "event", "concept", "technology", "product", "work of art", "unknown")
SHARES = (0.28, 0.2, 0.14, 0.1, 0.1, 0.07, 0.05, 0.03, 0.03)


def synthetic_index(n_entities: int, seed: int = 0) -> Tables:
    """An index with planted communities in three levels, hubs, four layers, reports and a bill, all heavy-tailed."""
    rng = np.random.default_rng(seed)
    sizes = [n_entities, n_entities // 9, n_entities // 60, max(n_entities // 500, 2)]
    layers = np.repeat(np.arange(4), sizes)
    n_all = len(layers)
    paths = _paths(n_all, rng)
    words = np.array([word.capitalize() for word in WORDS])
    names = [" ".join(rng.choice(words, rng.integers(1, 4), replace=False)) for _ in range(n_all)]
    entities = []
    for row in range(n_all):
        about = " ".join(rng.choice(WORDS, rng.integers(8, 45)))
        facts = {"name": names[row], "description": f"{names[row]} is known for {about}.", "entity_id": f"e{row:06d}"}
        chunks = [f"c{at}" for at in sorted(set(rng.integers(0, 300, 3).tolist()))]
        kind = str(rng.choice(KINDS, p=SHARES))
        entities.append(
            _entity(names[row], int(layers[row]), kind) | facts | {"chunk_ids": [] if layers[row] else chunks}
        )
    communities = _planted_communities(paths)
    return {
        **_documents(12, 300),
        "entities": _rows(schemas.ENTITIES, entities),
        "relations": _rows(schemas.RELATIONS, _planted_relations(paths, layers, rng)),
        "clusters": _rows(schemas.CLUSTERS, _planted_clusters(layers, rng)),
        "layers": _rows(schemas.LAYERS, _planted_layers(sizes)),
        "communities": _rows(schemas.COMMUNITIES, communities),
        "reports": _rows(schemas.REPORTS, [_planted_report(row, rng) for row in communities if row["n_entities"] > 4]),
        "usage": _rows(
            schemas.USAGE,
            [
                _usage("extract", "gpt-4o-mini", 612, 1.93),
                _usage("merge", "gpt-4o-mini", 88, 0.04),
                _usage("summarise", "gpt-4o-mini", 1204, 2.41),
                _usage("report", "gpt-4o", 260, 3.77),
                _usage("embed", "text-embedding-3-small", 54, 0.02),
            ],
        ),
    }


def _paths(n_all: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """For each entity its community at each level: heavy-tailed shares; one in five leaves is reached early."""
    paths = []
    top = 1 / np.arange(1, 19) ** 0.9
    for _ in range(n_all):
        if rng.random() < 0.01:
            paths.append((1000 + len(paths),))  # isolated
            continue
        first = int(rng.choice(len(top), p=top / top.sum()))
        if first > 12:
            paths.append((first,))
            continue
        shares = 1 / np.arange(1, 16 - first) ** 0.8
        second = int(rng.choice(len(shares), p=shares / shares.sum()))
        paths.append((first, second) if second > 4 else (first, second, int(rng.zipf(1.6)) % 9))
    return paths


def _planted_communities(paths: Sequence[tuple[int, ...]]) -> Rows:
    members: dict[tuple[int, ...], list[str]] = {}
    for row, path in enumerate(paths):
        for depth in range(1, len(path) + 1):
            members.setdefault(path[:depth], []).append(f"e{row:06d}")
    parents = {path[:-1] for path in members}
    name = {path: "k" + "-".join(map(str, path)) for path in members}
    return [
        _community(name[path], len(path) - 1, members[path], name.get(path[:-1]), path not in parents)
        for path in sorted(members, key=lambda path: (len(path), name[path]))
    ]


def _planted_relations(paths: Sequence[tuple[int, ...]], layers: np.ndarray, rng: np.random.Generator) -> Rows:
    """Three relations an entity: mostly within its deepest community, and to popular entities; summaries above."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for row, path in enumerate(paths):
        if path[0] < 1000:
            for depth in range(len(path) + 1):
                groups.setdefault(path[:depth], []).append(row)
    found = {}
    for row, path in enumerate(paths):
        if path[0] >= 1000:
            continue
        for _ in range(1 + min(int(rng.zipf(1.9)), 30)):
            depth = int(rng.choice([len(path), len(path) - 1, 0], p=[0.82, 0.14, 0.04]))
            pool = groups[path[:depth]]
            other = pool[int(len(pool) * rng.random() ** 3)]
            ends = (min(row, other), max(row, other))
            if row != other:
                kind = "extracted" if layers[row] == layers[other] == 0 else "summary"
                ids = [f"e{end:06d}" for end in ends]
                found[ends] = _relation(*ids, kind, float(np.round(rng.gamma(2.0) * 3 + 0.5, 1)))
    return [found[ends] for ends in sorted(found)]


def _planted_clusters(layers: np.ndarray, rng: np.random.Generator) -> Rows:
    return [
        {
            "cluster_id": f"g{layer}-{rng.integers(1 + int(np.sum(layers == layer)) // 8)}",
            "layer": int(layer),
            "entity_id": f"e{row:06d}",
            "responsibility": 1.0,
            "best": True,
        }
        for row, layer in enumerate(layers)
        if layer < 3
    ]


def _planted_layers(sizes: Sequence[int]) -> Rows:
    facts = [(0.9986, None, "go on"), (0.981, 0.0176, "go on"), (0.884, 0.0989, "go on")]
    last = "the layer is no larger than one target cluster"
    rows = [
        _layer(
            at,
            sizes[at],
            sizes[at + 1] if at < 3 else 0,
            facts[at][0] if at < 3 else None,
            facts[at][2] if at < 3 else last,
        )
        for at in range(4)
    ]
    for at in range(3):
        rows[at] |= {"change_rate": facts[at][1], "median_cluster": 7.5 - at, "largest_cluster": 31 - 6 * at}
        rows[at]["n_summaries"] = sizes[at + 1]
    return rows


def _planted_report(community: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    words = [str(word) for word in rng.choice(WORDS, 60)]
    title = " ".join(words[: int(rng.integers(2, 5))]).title() + (
        " and the " + words[5].title() if rng.random() < 0.5 else ""
    )
    finding = {"summary": " ".join(words[6:14]).capitalize(), "explanation": " ".join(words[14:50]).capitalize() + "."}
    finding |= {"entity_ids": community["entity_ids"][:2], "relation_ids": []}
    return _report(community["community_id"], community["level"], title) | {
        "summary": " ".join(words).capitalize() + ".",
        "rating": float(np.round(rng.uniform(2, 9.5), 1)),
        "findings": [finding] * int(rng.integers(2, 6)),
    }


def _documents(n_documents: int, n_chunks: int) -> Tables:
    documents: Rows = [
        {
            "document_id": f"d{at}",
            "uri": f"d{at}.txt",
            "record": 0,
            "title": f"D {at}",
            "source_ids": [],
            "labels": [],
            "n_chars": 4,
            "text": "text",
        }
        for at in range(n_documents)
    ]
    chunks: Rows = [
        {
            "chunk_id": f"c{at}",
            "document_id": f"d{at % n_documents}",
            "position": at // n_documents,
            "start": 0,
            "end": 4,
        }
        | {"n_tokens": 1200, "text": "text"}
        for at in range(n_chunks)
    ]
    return {"documents": _rows(schemas.DOCUMENTS, documents), "chunks": _rows(schemas.CHUNKS, chunks)}
