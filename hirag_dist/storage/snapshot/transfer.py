"""Copies of a snapshot between stores, checked against its manifest."""

from __future__ import annotations

import hashlib

from hirag_dist.errors import SnapshotCorrupt
from hirag_dist.storage.layout import MANIFEST, snapshot_path
from hirag_dist.storage.snapshot.manifest import Manifest
from hirag_dist.storage.store import Store

_PIECE_BYTES = 16 << 20


def copy_snapshot(source: Store, target: Store, manifest: Manifest) -> bool:
    """Copy a snapshot's files, its manifest last; return False where the target has the snapshot.

    Raises:
        SnapshotCorrupt: a file of the source is missing, short or altered, or its name leads out of the snapshot. The
            target then has no such snapshot.
    """
    paths = [manifest.snapshot_id, *(part for name in manifest.files for part in name.split("/"))]
    if any(part in ("", ".", "..") or "\\" in part for part in paths) or "/" in manifest.snapshot_id:
        raise SnapshotCorrupt(f"the manifest of a snapshot in {source.uri} names files outside of it")
    folder = snapshot_path(manifest.snapshot_id)
    if target.exists(f"{folder}/{MANIFEST}"):
        return False
    for name, entry in manifest.files.items():
        path = f"{folder}/{name}"
        if source.size(path) != entry.bytes:
            raise SnapshotCorrupt(f"{source.uri}/{path} is missing or has another size than its manifest says")
        digest = hashlib.sha256()
        with target.create(path) as file:
            for offset in range(0, entry.bytes, _PIECE_BYTES):
                piece = source.read_range(path, offset, min(_PIECE_BYTES, entry.bytes - offset))
                digest.update(piece)
                file.write(piece)
            if digest.hexdigest() != entry.sha256:
                raise SnapshotCorrupt(f"{source.uri}/{path} is altered: its digest is not that of the manifest")
    target.write_bytes(f"{folder}/{MANIFEST}", source.read_bytes(f"{folder}/{MANIFEST}"))
    return True
