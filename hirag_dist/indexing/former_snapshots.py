"""Former snapshots of an index: one with the documents of now is the result of an update that leads back to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from hirag_dist.errors import SnapshotError
from hirag_dist.execution.dataset import Dataset, DatasetStore
from hirag_dist.indexing.base import UpdateBase
from hirag_dist.indexing.budget import TextCounts, UpdateSummary
from hirag_dist.indexing.changed_documents import DocumentCounts
from hirag_dist.indexing.documents import ChunkedDocuments
from hirag_dist.schemas import DOCUMENTS, PLACES
from hirag_dist.storage import layout
from hirag_dist.storage.digest import table_digest
from hirag_dist.storage.layout import MANIFEST, REPORT_INPUTS, SUMMARIES, snapshot_path
from hirag_dist.storage.snapshot.manifest import Manifest, OpenTexts, parse_manifest
from hirag_dist.storage.store import Store

_MAX_GENERATIONS = 16  # each one is a manifest to read


def same_places(datasets: DatasetStore, places: Dataset, base: UpdateBase) -> bool:
    """Return whether PLACES, in any order, are those of a snapshot; they are read only where they are as many."""
    manifest = base.snapshot.manifest
    if places.rows != manifest.counts.get(layout.PLACES, 0):
        return False
    if not places.rows:
        return True
    by_start = [("document_id", "ascending"), ("start", "ascending")]
    hasher, expected = manifest.digest(layout.PLACES)
    return table_digest(datasets.read(places).sort_by(by_start).cast(PLACES), hasher) == expected


def former_snapshot(
    base: UpdateBase, datasets: DatasetStore, now: ChunkedDocuments, opened: Callable[[str], UpdateBase | None]
) -> UpdateBase | None:
    """Return the nearest snapshot that the base was made from which has the documents of now; None without one.

    A snapshot with dead letters does not count, nor one with more debt than the base or with another embedder, nor one
    whose summaries or reports derive from a former text of a document: that text may have been removed since.

    Args:
        now: read only where a snapshot may have them.
        opened: returns a snapshot as the base of an update, None where it cannot be one.
    """

    @cache
    def digest(hasher: Callable[[], Any]) -> str:
        return table_digest(datasets.read(now.documents).sort_by("document_id").cast(DOCUMENTS), hasher)

    def is_same(former: UpdateBase) -> bool:
        hasher, expected = former.snapshot.manifest.digest("documents")
        if digest(hasher) != expected:
            return False
        return same_places(datasets, now.places, former) and now.metadata.equals(former)

    store, note, limit = base.snapshot.store, base.note, base.note.debt_tokens
    for _ in range(_MAX_GENERATIONS):
        manifest = None if note.base is None else _manifest(store, note.base)
        if manifest is None or manifest.update is None:
            return None
        note = manifest.update
        is_usable = manifest.complete and not note.replaced and note.debt_tokens <= limit
        if is_usable and manifest.counts["documents"] == now.documents.rows:
            found = opened(manifest.snapshot_id)
            if found is not None and found.embedder == base.embedder and is_same(found):
                return found
    return None


def _manifest(store: Store, snapshot_id: str) -> Manifest | None:
    """Return the manifest of a snapshot, None where it was removed or is damaged."""
    path = f"{snapshot_path(snapshot_id)}/{MANIFEST}"
    try:
        return parse_manifest(store.read_bytes(path), store.uri) if store.exists(path) else None
    except SnapshotError:
        return None


def returning_summary(base: UpdateBase, former: UpdateBase, documents: DocumentCounts) -> UpdateSummary:
    """Return the summary of an update whose result is a former snapshot: all texts are kept, nothing is paid."""
    counts = {}
    for name, table in (("descriptions", None), ("summaries", SUMMARIES), ("reports", REPORT_INPUTS)):
        debt = former.note.debt.get(name, OpenTexts(units=0, tokens=0))
        n_kept = former.snapshot.manifest.counts[table] - debt.units if table else 0
        counts[name] = TextCounts(0, n_kept, debt.units, debt.stand_ins, debt.tokens)
    return UpdateSummary(
        base.snapshot_id,
        former.number,
        documents,
        counts["descriptions"],
        counts["summaries"],
        counts["reports"],
        0,
        0,
        None,
        returned=True,
    )
