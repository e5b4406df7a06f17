"""What an index no longer needs: snapshots that have not been current for long, with all that was made from them.

Who has a snapshot open is not known: services read the index and write nothing there. They take up a new snapshot
within seconds of its going live, so one that stopped being current long enough ago is in nobody's use.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from hirag_dist.errors import IndexBusy, SnapshotNotFound, StoreError
from hirag_dist.storage.layout import BUILD, CACHE, MANIFEST, snapshot_path
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.snapshot.history import record_current, remove_from_history, retired_at
from hirag_dist.storage.snapshot.reader import current_id
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)


class CollectionStore(Protocol):
    """The vector collections made from snapshots, at one place.

    Attributes:
        where: for messages.
    """

    where: str

    def of(self, snapshot_ids: Sequence[str]) -> list[str]:
        """Return the collections of snapshots."""
        ...

    def snapshots(self) -> set[str]:
        """Return the ids of the snapshots that there are collections of."""
        ...

    def drop(self, name: str) -> None:
        """Remove a collection."""
        ...


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """What may go.

    Attributes:
        keep: snapshots that are kept whatever their age, besides those that must be: those last current.
        older_than_s: seconds for which a snapshot has not been current before it may go.
    """

    keep: int = 1
    older_than_s: float = 86_400.0


@dataclass(frozen=True, slots=True)
class ExpiredSnapshot:
    """A snapshot that may go.

    Attributes:
        retired_at: seconds since the epoch; None for a folder that was never finished, or is half removed.
        size_bytes: of its files and of what was derived from them beside the index.
    """

    snapshot_id: str
    retired_at: float | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GcPlan:
    """What is removed.

    Attributes:
        snapshots: by the time at which they stopped being current.
        kept: ids of the snapshots that stay.
        orphans: names of folders of derived files whose snapshots are gone.
    """

    snapshots: tuple[ExpiredSnapshot, ...]
    kept: tuple[str, ...]
    orphans: tuple[str, ...]


def served(store: Store) -> str:
    """Return the id of the snapshot that is current.

    Raises:
        SnapshotNotFound: none is, or the one that is, is not there: then nothing is safe to remove.
    """
    current = current_id(store)
    if current is None or not store.exists(f"{snapshot_path(current)}/{MANIFEST}"):
        raise SnapshotNotFound(
            f"{store.uri} serves no snapshot that is there, so none is removed; publish one, or let "
            f"{store.uri}/current name one"
        )
    return current


def plan_gc(store: Store, rule: RetentionPolicy, now: float) -> GcPlan:
    """Return what may go. Kept whatever the rule says: the current snapshot, and that of the last build.

    Args:
        now: seconds since the epoch.

    Raises:
        SnapshotNotFound: as `served`.
    """
    needed = {served(store), *_of_last_build(store)}
    history = record_current(store)
    retired: list[tuple[float, str]] = []
    unfinished: list[str] = []
    names = store.names("snapshots")
    for snapshot_id in names:
        if not store.exists(f"{snapshot_path(snapshot_id)}/{MANIFEST}"):
            unfinished.append(snapshot_id)
        elif snapshot_id not in needed:
            at = retired_at(store, snapshot_id, history)
            if at is not None:
                retired.append((at, snapshot_id))
    retired.sort()
    candidates = retired[: max(len(retired) - rule.keep, 0)]
    old = [ExpiredSnapshot(own, at, _size(store, own)) for at, own in candidates if now - at >= rule.older_than_s]
    going = [*old, *(ExpiredSnapshot(own, None, _size(store, own)) for own in unfinished if own not in needed)]
    gone = {one.snapshot_id for one in going}
    orphans = tuple(name for name in store.names(CACHE) if not name.startswith(".") and name not in names)
    return GcPlan(tuple(going), tuple(own for own in names if own not in gone), orphans)


def collections_of(plan: GcPlan, collections: CollectionStore, *, shared: bool) -> list[str]:
    """Return the collections that go with the snapshots of a plan.

    Args:
        collections: at one place.
        shared: whether other indexes have theirs there too. Where they have not, those go too whose snapshots were
            removed while the place was out of reach.

    Raises:
        BackendUnavailable: it is out of reach.
    """
    going = {one.snapshot_id for one in plan.snapshots}
    if not shared:
        going |= collections.snapshots() - set(plan.kept)
    return collections.of(sorted(going))


def prune(store: Store, lock: BuildLock, plan: GcPlan, places: Sequence[tuple[CollectionStore, Sequence[str]]]) -> None:
    """Remove what is planned. What a killed run leaves is no snapshot any more, and goes with the next one.

    Args:
        lock: held by the caller: what is being built looks like what was never finished.
        places: where collections are, and which go there.

    Raises:
        BackendUnavailable: a collection cannot be dropped.
        IndexBusy: a build has taken the index over, or what was to go is current now.
        StoreError: something cannot be removed.
    """
    for one in plan.snapshots:
        with lock.fenced():
            if one.snapshot_id == current_id(store):
                raise IndexBusy(f"{one.snapshot_id} went live meanwhile; run the command again")
            store.delete(f"{snapshot_path(one.snapshot_id)}/{MANIFEST}")
    for collections, names in places:
        for name in names:
            collections.drop(name)
            logger.info("dropped collection %s at %s", name, collections.where)
    for one in plan.snapshots:
        lock.check()
        _remove_derived(store, one.snapshot_id)
        store.delete(snapshot_path(one.snapshot_id))
        logger.info("removed snapshot %s", one.snapshot_id)
    for name in plan.orphans:
        _remove_derived(store, name)
    remove_from_history(store, {one.snapshot_id for one in plan.snapshots})


def _of_last_build(store: Store) -> Iterator[str]:
    """Yield the snapshot that `retry` would go on from."""
    with suppress(StoreError):
        record = store.read_json(BUILD)
        if isinstance(record, dict) and record.get("snapshot"):
            yield str(record["snapshot"])


def _remove_derived(store: Store, snapshot_id: str) -> None:
    store.delete(f"{CACHE}/{snapshot_id}")
    store.delete(f"{CACHE}/.{snapshot_id}.lock")


def _size(store: Store, snapshot_id: str) -> int:
    return sum(_folder_size(store, folder) for folder in (snapshot_path(snapshot_id), f"{CACHE}/{snapshot_id}"))


def _folder_size(store: Store, folder: str) -> int:
    files = store.entries(folder)
    below = (name for name in store.names(folder) if name not in files)
    return sum(entry.size for entry in files.values()) + sum(_folder_size(store, f"{folder}/{name}") for name in below)
