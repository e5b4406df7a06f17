"""The record of documents that are still to be forgotten: forget.json, there from the first step to the last."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from hirag_dist.storage.layout import FORGET
from hirag_dist.storage.store import Store


@dataclass(frozen=True, slots=True)
class PendingForget:
    """A forgetting that is not finished. It holds hashes and ids of snapshots, and no text.

    Attributes:
        documents: ids.
        chunks: ids of their chunks.
        snapshots: that are to be removed.
        since: UTC, ISO 8601.
        replies_dropped, replies_kept: by the purge of the ledger; None while that is not done.
        verified: whether everything but these snapshots was searched and found clean.
        problems: obstacles of the last run, for people.
    """

    documents: tuple[str, ...]
    chunks: tuple[str, ...]
    snapshots: tuple[str, ...]
    since: str
    replies_dropped: int | None = None
    replies_kept: int | None = None
    verified: bool = False
    problems: tuple[str, ...] = ()


def pending_forget(store: Store) -> PendingForget | None:
    """Return the forgetting that is not finished, None where there is none.

    Raises:
        StoreError: the record is damaged.
    """
    if not store.exists(FORGET):
        return None
    record = store.read_json(FORGET)
    listed = {name: tuple(record[name]) for name in ("documents", "chunks", "snapshots", "problems")}
    return PendingForget(**record | listed)


def note_forget(
    store: Store, documents: Iterable[str], chunks: Iterable[str] = (), snapshots: Iterable[str] = ()
) -> PendingForget:
    """Put documents on the record, in addition to those that are there; what was done is to be done again for them.

    The caller holds the build lock.
    """
    before = pending_forget(store)
    new = PendingForget(
        _joined(documents, () if before is None else before.documents),
        _joined(chunks, () if before is None else before.chunks),
        _joined(snapshots, () if before is None else before.snapshots),
        datetime.now(UTC).isoformat(timespec="seconds") if before is None else before.since,
    )
    if before is not None and (new.documents, new.chunks) == (before.documents, before.chunks):
        new = replace(before, snapshots=new.snapshots)
    return write_pending(store, new)


def write_pending(store: Store, pending: PendingForget) -> PendingForget:
    """Write the record; return it."""
    store.write_json(FORGET, asdict(pending))
    return pending


def _joined(more: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({*known, *more}))
