"""A small snapshot that every test of this folder may damage: it is written anew for each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from hirag_dist import schemas
from hirag_dist.core.graph import build_graph
from hirag_dist.core.ids import entity_id, relation_id
from hirag_dist.index.manifest import Manifest
from hirag_dist.index.store import Store
from hirag_dist.index.writer import write_snapshot

Content = tuple[dict[str, pa.Table], dict[str, NDArray[Any]]]


def content(description: str = "A miser.", dim: int = 4, n_chunks: int = 2) -> Content:
    """Scrooge — Marley — Bob, one layer, one community; `n_chunks` of 100 random numbers each."""
    names = ["scrooge", "marley", "bob"]
    ids = sorted(entity_id(0, name) for name in names)
    entities = [
        {"entity_id": own, "layer": 0, "name": own[:4], "type": "person", "description": description, "described": True,
         "n_mentions": 1, "chunk_ids": ["c0"]}
        for own in ids
    ]  # fmt: skip
    relations = [
        {"relation_id": relation_id("extracted", a, b), "source_id": a, "target_id": b, "kind": "extracted", "layer": 0,
         "description": "They meet.", "weight": 2.0, "chunk_ids": ["c0"]}
        for a, b in [(ids[0], ids[1]), (ids[1], ids[2])]
    ]  # fmt: skip
    chunks = [
        {
            "chunk_id": f"c{at}",
            "document_id": "d",
            "position": at,
            "start": at,
            "end": at + 1,
            "n_tokens": 1,
            "text": "x",
        }
        for at in range(n_chunks)
    ]
    document = {
        "document_id": "d",
        "uri": "file:/d",
        "record": 0,
        "title": "D",
        "labels": [],
        "n_chars": 2,
        "text": "xx",
    }
    community = {"community_id": "p", "level": 0, "parent_id": None, "is_leaf": True, "n_entities": 3, "n_relations": 2,
                 "entity_ids": ids}  # fmt: skip
    finding = {"summary": "S", "explanation": "E", "entity_ids": ids[:1], "relation_ids": []}
    report = {"community_id": "p", "level": 0, "title": "T", "summary": "S.", "rating": 3.0, "rating_explanation": "",
              "findings": [finding], "origin": "model", "n_dropped_references": 0}  # fmt: skip
    rows: dict[str, tuple[list[dict[str, Any]], pa.Schema]] = {
        "documents": ([document], schemas.DOCUMENTS),
        "chunks": (chunks, schemas.CHUNKS),
        "entities": (entities, schemas.ENTITIES),
        "relations": (relations, schemas.RELATIONS),
        "clusters": ([], schemas.CLUSTERS),
        "layers": ([], schemas.LAYERS),
        "communities": ([community], schemas.COMMUNITIES),
        "reports": ([report], schemas.REPORTS),
        "usage": ([], schemas.USAGE),
        "rejects": ([], schemas.REJECTS),
    }
    tables = {name: pa.Table.from_pylist(*part) for name, part in rows.items()}
    graph = build_graph(tables["entities"]["entity_id"], tables["relations"])
    arrays: dict[str, NDArray[Any]] = {
        "graph/indptr": graph.indptr,
        "graph/indices": graph.indices,
        "graph/weights": graph.weights,
        "graph/relation_rows": graph.relation_rows,
        "vectors/entities": np.eye(3, dim, dtype=np.float32),
        "vectors/chunks": np.random.default_rng(0).normal(size=(n_chunks, dim)).astype(np.float32),
    }
    return tables, arrays


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store in a folder that is not there yet."""
    return Store(str(tmp_path / "index"))


@pytest.fixture
def make_content() -> Callable[..., Content]:
    """Make the tables and arrays of the small snapshot."""
    return content


@pytest.fixture
def write(store: Store) -> Callable[..., Manifest]:
    """Write a snapshot of the small content, or a variant of it."""

    def written(into: Store = store, *, complete: bool = True, **variant: Any) -> Manifest:
        tables, arrays = content(**variant)
        return write_snapshot(into, tables, arrays, embedder="hashing", complete=complete, build={}, notes={})

    return written
