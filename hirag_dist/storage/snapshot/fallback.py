"""Fallback: where the current snapshot cannot be read, the newest whole one is used in its place.

`current` or a file of its snapshot may be damaged by an error of the disk or an edit by hand. What falls back says so,
in the log and in its results.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

from hirag_dist.errors import SnapshotCorrupt, SnapshotError, SnapshotNotFound, StoreError
from hirag_dist.storage.layout import CURRENT, FORGET, MANIFEST, SNAPSHOTS, snapshot_path
from hirag_dist.storage.snapshot.history import current_times
from hirag_dist.storage.snapshot.manifest import Manifest, parse_manifest
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)


def open_current(store: Store, snapshot_id: str | None = None, *, warn: bool = True) -> Snapshot:
    """Open the current snapshot, or the newest whole one where the current one is damaged or gone.

    Args:
        snapshot_id: of the snapshot to open; then nothing is opened in its place.
        warn: log a warning where another one is used. False where the command opens the index again, and warns then.

    Returns:
        A snapshot; `fallback` says why it is not the current one.

    Raises:
        SnapshotNotFound: nothing is published, or there is no such snapshot.
        SnapshotCorrupt: the snapshot is damaged, and no whole one is opened in its place.
        SnapshotTooNew: a later version of hirag_dist wrote the snapshot.
    """
    try:
        return open_snapshot(store, snapshot_id)
    except (SnapshotCorrupt, SnapshotNotFound) as error:
        if snapshot_id is not None or current_id(store) is None:
            raise
        snapshot = next(whole_snapshots(store), None)
        if snapshot is None:
            raise
        return in_place_of_current(snapshot, error, warn=warn)


def whole_snapshots(store: Store, *, full_check: bool = False) -> Iterator[Snapshot]:
    """Yield the whole snapshots except the current one and those with documents that are being forgotten, newest first.

    Newest is what was current last; those that never were follow by the time of their manifest.
    """
    since = current_times(store)
    left_out = {current_id(store)}
    if store.exists(FORGET):
        left_out |= set(store.read_json(FORGET)["snapshots"])
    names = [name for name in store.names(SNAPSHOTS) if name not in left_out]
    written = {name: store.entries(snapshot_path(name)).get(MANIFEST) for name in names}
    ordered = sorted(
        ((name in since, since.get(name, manifest.modified), name) for name, manifest in written.items() if manifest),
        reverse=True,
    )
    for _, _, name in ordered:
        try:
            snapshot = open_snapshot(store, name, full_check)
        except SnapshotError as error:
            logger.info("snapshot %s is not used: %s", name, error)
            continue
        yield snapshot


def readable_manifests(store: Store) -> Iterator[Manifest]:
    """Yield the manifests of all snapshots, those apart that are damaged; other files of a snapshot may be damaged."""
    for name in store.names(SNAPSHOTS):
        folder = snapshot_path(name)
        with suppress(SnapshotError, StoreError):
            yield parse_manifest(store.read_bytes(f"{folder}/{MANIFEST}"), f"{store.uri}/{folder}")


def in_place_of_current(snapshot: Snapshot, error: SnapshotError, *, warn: bool = True) -> Snapshot:
    """Return a whole snapshot as the one used in place of the current one, which raised an error."""
    uri, manifest = snapshot.store.uri, snapshot.manifest
    logger.log(
        logging.WARNING if warn else logging.DEBUG,
        "%s. Snapshot %s of %s, the newest whole one, is used in its place; documents that were removed since "
        "are in it. `hirag-dist index INPUT --index %s` with all documents makes the index whole; %s/%s names the "
        "snapshot to use",
        error,
        manifest.snapshot_id,
        manifest.created_at,
        uri,
        uri,
        CURRENT,
    )
    snapshot.fallback = str(error)
    return snapshot
