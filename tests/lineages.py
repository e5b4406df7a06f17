"""Snapshots of an index and of its updates: few entities, whose vectors a test chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist import schemas
from hirag_dist.storage.layout import MANIFEST, snapshot_path
from hirag_dist.storage.snapshot.manifest import parse_manifest
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.snapshot.writer import write_snapshot
from hirag_dist.storage.store import Store
from tests.altered_snapshots import altered
from tests.table_rows import filled_table

DIM = 16
_EMPTY = ("documents", "chunks", "relations", "clusters", "layers", "communities", "reports", "usage", "rejects")


def unit(seed: int) -> NDArray[np.float32]:
    """A vector of length 1."""
    vector = np.random.default_rng(seed).normal(size=DIM).astype(np.float32)
    return vector / np.float32(np.linalg.norm(vector))


def publish(
    store: Store, vectors: Mapping[str, NDArray[np.float32]], base: str | None = None, *, salt: str = ""
) -> Snapshot:
    """Write a snapshot, of an update where there is a base.

    Args:
        vectors: by entity id; an id that begins with "s" is of a summary in layer 1, one with "t" of one in layer 2.
        salt: of names: another one gives another snapshot id, so that tests share a server.
    """
    ids = sorted(vectors)  # "e" before "s" and "t"
    entities = ({"entity_id": own, "layer": "est".index(own[0]), "name": f"{own} {salt}"} for own in ids)
    tables = {name: getattr(schemas, name.upper()).empty_table() for name in _EMPTY}
    tables["entities"] = filled_table(schemas.ENTITIES, entities)
    arrays: dict[str, NDArray[Any]] = {
        "graph/indptr": np.zeros(len(ids) + 1, np.int64),
        "graph/indices": np.zeros(0, np.int32),
        "graph/weights": np.zeros(0, np.float32),
        "graph/relation_rows": np.zeros(0, np.int32),
        "vectors/entities": np.array([vectors[own] for own in ids], np.float32).reshape(-1, DIM),
        "vectors/chunks": np.zeros((0, DIM), np.float32),
    }
    notes = {"update": {"number": 0 if base is None else 1, "base": base}}
    manifest = write_snapshot(store, tables, arrays, embedder="e", complete=True, build={}, notes=notes)
    return open_snapshot(store, manifest.snapshot_id)


def as_update(snapshot: Snapshot, base: str) -> Snapshot:
    """Note the base of a snapshot that was built from nothing."""
    path = f"{snapshot_path(snapshot.manifest.snapshot_id)}/{MANIFEST}"
    manifest = parse_manifest(snapshot.store.read_bytes(path), path)
    update = {"update": {"number": 1, "base": base}}
    changed = manifest.model_copy(update={"notes": {**manifest.notes, **update}})
    snapshot.store.write_bytes(path, changed.model_dump_json(indent=1).encode())
    return open_snapshot(snapshot.store, snapshot.manifest.snapshot_id)


def with_new_vectors(base: Snapshot, rows: Sequence[int]) -> Snapshot:
    """An update of a whole snapshot by which some entities have other vectors."""
    vectors = np.array(base.entity_vectors)
    vectors[list(rows)] = vectors[list(rows)][::-1]
    notes = {**base.manifest.notes, "update": {"number": 1, "base": base.manifest.snapshot_id}}
    return altered(base, {}, notes, arrays={"vectors/entities": vectors})
