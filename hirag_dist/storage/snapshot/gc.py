"""Garbage collection of snapshots that have not been current for long, and of what was derived from them.

The readers of a snapshot are unknown, since services write nothing to the index. A service opens a new snapshot within
seconds after it goes live, so one that stopped being current long enough ago has no reader left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from hirag_dist.errors import IndexBusy, SnapshotNotFound, StoreError
from hirag_dist.storage.layout import BUILD, CACHE, FORGET, MANIFEST, SNAPSHOTS, is_snapshot_folder, snapshot_path
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.snapshot.history import record_current, remove_from_history, retired_at
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)


class CollectionStore(Protocol):
    """The vector collections of snapshots on one server or in one file.

    Attributes:
        where: for messages.
    """

    where: str

    def of(self, snapshot_ids: Sequence[str]) -> list[str]:
        """Return the names of the collections of snapshots, which may be parts of shared ones."""

    def snapshots(self) -> set[str]:
        """Return the ids of the snapshots that have collections."""

    def drop(self, names: Sequence[str], kept: Callable[[], Iterable[Snapshot]]) -> None:
        """Remove collections, and of shared ones what the snapshots that stay do not need."""


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The rule by which snapshots expire.

    Attributes:
        keep: how many of the last current snapshots are kept whatever their age, in addition to those in use.
        older_than_s: seconds since a snapshot stopped being current before it expires.
    """

    keep: int = 1
    older_than_s: float = 86_400.0


@dataclass(frozen=True, slots=True)
class ExpiredSnapshot:
    """A snapshot to remove.

    Attributes:
        retired_at: seconds since the epoch; None for an incomplete folder.
        size_bytes: bytes that its removal frees, in its folder and in the index's cache. A file that
            several snapshots have counts for the last of them to be removed, not at all if one stays.
    """

    snapshot_id: str
    retired_at: float | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GcPlan:
    """The snapshots and files to remove.

    Attributes:
        snapshots: by the time at which they stopped being current.
        kept: ids of the snapshots that stay.
        orphans: names of folders of derived files and late reports whose snapshots are gone.
    """

    snapshots: tuple[ExpiredSnapshot, ...]
    kept: tuple[str, ...]
    orphans: tuple[str, ...]


def served(store: Store) -> str:
    """Return the id of the current snapshot.

    Raises:
        SnapshotNotFound: there is none, or it does not exist: then nothing is safe to remove.
    """
    current = current_id(store)
    if not current or not store.exists(f"{snapshot_path(current)}/{MANIFEST}"):
        raise SnapshotNotFound(
            f"{store.uri} serves no snapshot that exists, so none is removed; publish one, or let "
            f"{store.uri}/current name one"
        )
    return current


def plan_gc(store: Store, rule: RetentionPolicy, now: float) -> GcPlan:
    """Return the plan by the rule. The current snapshot and that of the last build are always kept.

    So are snapshots with documents that are being forgotten, until the rest is verified to have no trace of them: they
    are what it is compared with.

    Args:
        now: seconds since the epoch.

    Raises:
        SnapshotNotFound: as `served`.
        SnapshotCorrupt: the current snapshot is damaged: an earlier one may be the last that is whole.
    """
    open_snapshot(store, served(store), full_check=store.local is not None)
    needed = {served(store)}
    with suppress(StoreError):
        last_build = store.read_json(BUILD)
        if isinstance(last_build, dict) and last_build.get("snapshot"):
            needed.add(str(last_build["snapshot"]))  # from which `retry` continues
    if store.exists(FORGET):
        forgetting = store.read_json(FORGET)
        if not forgetting.get("verified"):
            needed.update(forgetting.get("snapshots", ()))
    history = record_current(store)
    retired: list[tuple[float, str]] = []
    unfinished: list[str] = []
    names = list(filter(is_snapshot_folder, store.names(SNAPSHOTS)))
    for snapshot_id in names:
        if not store.exists(f"{snapshot_path(snapshot_id)}/{MANIFEST}"):
            unfinished.append(snapshot_id)
        elif snapshot_id not in needed:
            at = retired_at(store, snapshot_id, history)
            if at is not None:
                retired.append((at, snapshot_id))
    retired.sort()
    candidates = retired[: max(len(retired) - rule.keep, 0)]
    due: list[tuple[float | None, str]] = [(at, name) for at, name in candidates if now - at >= rule.older_than_s]
    due += [(None, name) for name in unfinished if name not in needed]
    links: dict[int, int] = {}
    expired = [ExpiredSnapshot(name, at, _size(store, name, links)) for at, name in due]
    removed = {snapshot.snapshot_id for snapshot in expired}
    orphans = orphans_of(store, names)
    return GcPlan(tuple(expired), tuple(name for name in names if name not in removed), orphans)


def orphans_of(store: Store, names: Collection[str]) -> tuple[str, ...]:
    """Return the names of folders of derived files whose snapshots are not among these."""
    return tuple(name for name in store.names(CACHE) if is_snapshot_folder(name) and name not in names)


def collections_of(plan: GcPlan, collections: CollectionStore, *, shared: bool) -> list[str]:
    """Return the collections to drop with the snapshots of a plan.

    Args:
        shared: whether other indexes have collections there too. If not, collections without a snapshot are dropped as
            well: their snapshots were removed while the server was out of reach.

    Raises:
        BackendUnavailable: the server is out of reach.
    """
    removed = {snapshot.snapshot_id for snapshot in plan.snapshots}
    if not shared:
        removed |= collections.snapshots() - set(plan.kept)
    return collections.of(sorted(removed))


def prune(
    store: Store, lock: BuildLock, plan: GcPlan, collections: Sequence[tuple[CollectionStore, Sequence[str]]]
) -> None:
    """Remove the planned snapshots. Without its manifest a folder is no snapshot: the next run removes a partial one.

    Args:
        lock: held by the caller, since a build in progress looks like an incomplete folder.
        collections: stores of collections, and the names to drop in each.

    Raises:
        BackendUnavailable: a collection cannot be dropped.
        IndexBusy: a build has taken the index over, or a planned snapshot is current now.
        StoreError: a file cannot be removed.
    """
    for snapshot in plan.snapshots:
        with lock.fenced():
            if snapshot.snapshot_id == current_id(store):
                raise IndexBusy(f"{snapshot.snapshot_id} went live meanwhile; run the command again")
            store.delete(f"{snapshot_path(snapshot.snapshot_id)}/{MANIFEST}")
    for collection_store, names in collections:
        collection_store.drop(names, lambda: [open_snapshot(store, snapshot_id) for snapshot_id in plan.kept])
        for name in names:
            logger.info("dropped collection %s at %s", name, collection_store.where)
    for snapshot in plan.snapshots:
        lock.check()
        _remove_derived(store, snapshot.snapshot_id)
        store.delete(snapshot_path(snapshot.snapshot_id))
        logger.info("removed snapshot %s", snapshot.snapshot_id)
    for name in plan.orphans:
        _remove_derived(store, name)
    remove_from_history(store, {snapshot.snapshot_id for snapshot in plan.snapshots})


def _remove_derived(store: Store, snapshot_id: str) -> None:
    store.delete(f"{CACHE}/{snapshot_id}")
    store.delete(f"{CACHE}/.{snapshot_id}.lock")


def _size(store: Store, snapshot_id: str, links: dict[int, int]) -> int:
    """Return the bytes that are free when a snapshot is removed after others.

    Args:
        links: inode of a local file → its names that are left when the others are removed; changed here.
    """
    folders = (snapshot_path(snapshot_id), f"{CACHE}/{snapshot_id}")
    paths = [path for folder in folders for path in store.walk(folder)]
    if store.local is None:
        return sum(store.size(path) or 0 for path in paths)
    freed = 0
    for path in paths:
        with suppress(FileNotFoundError):  # another process cleans the cache
            status = (store.local / path).stat()
            links[status.st_ino] = links.get(status.st_ino, status.st_nlink) - 1
            freed += status.st_size if links[status.st_ino] == 0 else 0
    return freed
