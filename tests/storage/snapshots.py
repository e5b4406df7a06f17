"""A tiny snapshot, described in words: two people in a city, from one document, summarised once."""

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

from hirag_dist import schemas
from hirag_dist.core.entities.merging import inter_layer_relation
from hirag_dist.core.graph.communities import community_table
from hirag_dist.core.graph.csr import build_graph
from hirag_dist.storage.digest import table_digest
from hirag_dist.storage.serving import base_values
from hirag_dist.storage.snapshot import divided_tables
from hirag_dist.storage.snapshot.manifest import Manifest
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.snapshot.writer import make_current, write_snapshot
from hirag_dist.storage.store import Store
from tests.table_rows import filled_row, filled_table


def entity(own: str, layer: int, name: str, chunk_ids: list[str]) -> dict[str, Any]:
    """Return a row of ENTITIES."""
    given = {"type": "concept", "description": f"About {name}.", "chunk_ids": chunk_ids}
    return filled_row(schemas.ENTITIES, entity_id=own, layer=layer, name=name, **given)


def tiny_tables(note: str = "") -> dict[str, pa.Table]:
    """Return every table of a snapshot."""
    text = f"Scrooge and Marley lived in London.{note}"
    entities = [
        entity("e1", 0, "Scrooge", ["k1"]),
        entity("e2", 0, "Marley", ["k1"]),
        entity("e3", 0, "London", ["k1"]),
        entity("e4", 1, "London people", []),
    ]
    relations = [
        inter_layer_relation("extracted", "e1", "e2", 0, "Partners.", 5.0) | {"chunk_ids": ["k1"]},
        inter_layer_relation("summary", "e1", "e4", 0, "Covered.", 1.0),
        inter_layer_relation("summary", "e3", "e4", 0, "Covered.", 2.0),
    ]
    tables = {name: getattr(schemas, name.upper()).empty_table() for name in ("clusters", "usage", "rejects", "layers")}
    document = {"document_id": "d1", "uri": "carol.txt", "title": "Carol", "source_ids": ["carol"], "text": text}
    tables["documents"] = filled_table(schemas.DOCUMENTS, [document | {"n_chars": len(text)}])
    chunk = {"chunk_id": "k1", "document_id": "d1", "end": len(text), "n_tokens": 9, "text": text}
    tables["chunks"] = filled_table(schemas.CHUNKS, [chunk])
    tables["entities"] = pa.Table.from_pylist(entities, schemas.ENTITIES)
    tables["relations"] = pa.Table.from_pylist(relations, schemas.RELATIONS).sort_by("relation_id")
    graph = build_graph(tables["entities"]["entity_id"], tables["relations"])
    tables["communities"] = community_table([np.zeros(4, np.int64)], graph, tables["entities"]["entity_id"])
    report = {"community_id": tables["communities"]["community_id"][0].as_py(), "rating": 4.0}
    told = {"title": "Scrooge's London", "summary": "Who lived there.", "origin": "model"}
    tables["reports"] = filled_table(schemas.REPORTS, [report | told])
    return tables


def publish(store: Store, tables: dict[str, pa.Table] | None = None, live: bool = True) -> Manifest:
    """Write the tiny snapshot, with vectors along the axes: entity i points along axis i."""
    vectors = {"vectors/entities": np.eye(4, dtype="f4"), "vectors/chunks": np.full((1, 4), 0.5, np.float32)}
    manifest = written(store, tables or tiny_tables(), vectors).manifest
    if live:
        make_current(store, manifest.snapshot_id)
    return manifest


def written(
    store: Store, tables: dict[str, pa.Table], vectors: dict[str, Any], base: Snapshot | None = None, **options: Any
) -> Snapshot:
    """Write a snapshot with the graph of its tables, and open it."""
    graph = build_graph(tables["entities"]["entity_id"], tables["relations"])
    parts = ("indptr", "indices", "weights", "relation_rows")
    arrays = {f"graph/{part}": getattr(graph, part) for part in parts} | vectors
    facts: dict[str, Any] = {"embedder": "axes", "complete": True, "build": {}, "notes": {}, "base": base}
    manifest = write_snapshot(store, tables, arrays, **facts, **options)
    return open_snapshot(store, manifest.snapshot_id, full_check=True)


def flip(file: Path, at: int | None = None) -> None:
    """Alter the byte of a file at a place; in its middle, where none is given."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    file.write_bytes(data)


_WRITTEN: list[tuple[dict[str, bytes], Manifest]] = []  # files of an index with the tiny snapshot, once it is needed


def published(store: Store) -> Manifest:
    """Make a store that holds a copy of the tiny snapshot, for tests that are about reading it."""
    if not _WRITTEN:
        with tempfile.TemporaryDirectory() as folder:
            made = Store(folder)
            manifest = publish(made)
            _WRITTEN.append(({path: made.read_bytes(path) for path in made.walk("")}, manifest))
    files, manifest = _WRITTEN[0]
    for path, data in files.items():
        file = Path(store.root, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return manifest


def as_remote(local: Store) -> Store:
    """Return a copy of an index that is not in a folder of this machine."""
    store = Store("mock:///index")
    fs.copy_files(local.root, store.root, fs.LocalFileSystem(), store._fs)
    return store


def as_an_earlier_version_wrote_it(store: Store, snapshot_id: str) -> None:
    """Give a snapshot the manifest that it had in format 1: SHA-256 of its files and of its content, under its id."""
    snapshot = open_snapshot(store, snapshot_id)
    path = Path(store.root) / snapshot.folder / "manifest.json"
    manifest = json.loads(path.read_text())
    for entry in manifest["files"].values():
        entry.pop("blake3", None)
    manifest["content"] = {name: hashlib.sha256(name.encode()).hexdigest() for name in manifest["content"]}
    for name in manifest["content"].keys() & {"documents", "places"}:
        table = snapshot.table(name).cast(getattr(schemas, name.upper()))
        manifest["content"][name] = table_digest(table, hashlib.sha256)
    path.write_text(json.dumps(manifest | {"format_version": 1}))


def keep_all_rows(patch: pytest.MonkeyPatch) -> None:
    """Let rows stay in files of a former snapshot, however small the tables and however many rows changed."""
    for name, value in (("MIN_ROWS", 1), ("MAX_CHANGED", 9.0), ("MAX_UNUSED", 9.0)):
        patch.setattr(base_values, name, value)
    patch.setattr(divided_tables, "MIN_BYTES", 1)
