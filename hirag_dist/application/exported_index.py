"""Exports that hold their snapshot, and its import as it is: nothing is built again and no model is asked.

An export of Parquet tables has a folder `hirag_dist` next to them: an index of that one snapshot, and `export.json`
with the digests of the tables. As long as the tables are those that were exported, an import copies the snapshot.
Tables that were edited are imported like those of another tool.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterable
from pathlib import Path

from hirag_dist.application.build import index_result
from hirag_dist.application.index_result import IndexResult
from hirag_dist.errors import StoreError
from hirag_dist.indexing.pipeline import BuildResult
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.storage.layout import DROPPED
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.snapshot.history import rolled_back_to
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot, read_current
from hirag_dist.storage.snapshot.transfer import copy_snapshot
from hirag_dist.storage.snapshot.writer import make_current
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)
FOLDER = "hirag_dist"
_DIGESTS = "export.json"


def keep_snapshot(snapshot: Snapshot, folder: Path, tables: Iterable[str]) -> str:
    """Write the snapshot next to exported tables; return the folder.

    Args:
        folder: of the tables.
        tables: names of their files.
    """
    kept = Store(str(folder / FOLDER))
    kept.delete(_DIGESTS)  # a copy that is cut off is none
    copy_snapshot(snapshot.store, kept, snapshot.manifest)
    make_current(kept, snapshot.manifest.snapshot_id)
    digests = {name: _digest(folder / name) for name in tables}
    kept.write_json(_DIGESTS, {"snapshot": snapshot.manifest.snapshot_id, "tables": digests})
    return str(folder / FOLDER)


def exported_snapshot(folder: str) -> Snapshot | None:
    """Return the snapshot of an export, None where the folder is none, or its tables are not as they were exported.

    Raises:
        SnapshotError: the snapshot of the export is damaged.
    """
    root = Path(folder).expanduser()
    kept = Store(str(root / FOLDER))
    try:
        if not kept.exists(_DIGESTS):
            return None
        noted = kept.read_json(_DIGESTS)
        same = all(_digest(root / name) == digest for name, digest in noted["tables"].items())
        added = {path.name for path in root.glob("*.parquet")} - {*noted["tables"]}
        return open_snapshot(kept, noted["snapshot"]) if same and not added else None
    except (KeyError, TypeError, AttributeError, OSError, StoreError) as error:
        logger.info("%s is not imported as an export: %s", folder, error)
        return None


def import_snapshot(
    exported: Snapshot, index_uri: str, wait_s: float = 0.0, *, force_current: bool = False
) -> IndexResult:
    """Copy the snapshot of an export into an index and make it current.

    Args:
        index_uri: folder or URI of the index; created if it is not there.
        wait_s: seconds to wait while another build holds the index.
        force_current: also where `current` was set back from this snapshot by hand.

    Raises:
        SnapshotCorrupt: a file of the export is missing, short or altered.
        IndexBusy: another build holds the index.
        StoreError: the index cannot be written.
    """
    started = time.perf_counter()
    store, manifest = Store(index_uri), exported.manifest
    store.check_writable()
    with BuildLock(store, wait_s) as lock:
        copy_snapshot(exported.store, store, manifest)
        before = read_current(store)
        kept_current_id = None if force_current else rolled_back_to(store, manifest.snapshot_id)
        changed = before.snapshot_id != manifest.snapshot_id and kept_current_id is None
        with lock.fenced():
            if changed:
                make_current(store, manifest.snapshot_id, before)
    rejects, dropped = (manifest.counts.get(name, 0) for name in ("rejects", DROPPED))
    result = BuildResult(manifest, changed, 0, rejects, dropped, kept_current_id)
    return index_result(store, result, UsageMeter(), time.perf_counter() - started)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
