"""Forgetting of removed documents: ledger, work, records, caches, old snapshots and their collections.

The steps are on record in forget.json from the first to the last, so that a run that is killed anywhere is continued by
the next one. A step is done again rather than left out.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

from hirag_dist.application.forget_evidence import (
    PendingForget,
    RemovedDocuments,
    find_removed,
    finished_snapshots,
    note_forget,
    pending_forget,
    write_pending,
)
from hirag_dist.application.forget_verification import (
    LEFTOVER_S,
    Finding,
    TraceSearch,
    find_collections,
    open_collections,
    temporary_files,
    verify_removed,
)
from hirag_dist.application.stored_replies import models_of_last_build, replay_keys, snapshot_vector_keys
from hirag_dist.composition.models import cut_as_index, settle_embedder
from hirag_dist.config.model import Config
from hirag_dist.core.text.normalize import count_noun, first_names
from hirag_dist.errors import BackendUnavailable, InputError, StoreError
from hirag_dist.llm.reply_store import PurgeResult, purge
from hirag_dist.llm.reply_store.block_format import Record, unpack_value
from hirag_dist.storage.layout import BUILD, BUILDS, CACHE, DROPS, FORGET, is_snapshot_folder, snapshot_path
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.snapshot.cache import cached_folders
from hirag_dist.storage.snapshot.gc import (
    ExpiredSnapshot,
    GcPlan,
    RetentionPolicy,
    collections_of,
    orphans_of,
    prune,
    served,
)
from hirag_dist.storage.snapshot.history import record_current, retired_at
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.snapshot.writer import write_whole
from hirag_dist.storage.store import Store

_REDACTED = "(removed)"
_FREE_TEXT = frozenset({"error", "why"})  # keys of records whose values may quote a text


def purge_replies(store: Store, config: Config, lock: BuildLock, current: Snapshot) -> PurgeResult:
    """Keep the stored replies that layer 0 of a build from nothing of the current chunks rests on, and drop all others.

    The keys to keep are computed from the text of its chunks alone, so no kept reply derives from anything else.
    A part of a reply to several units counts as the reply to its own unit.

    Raises:
        ConfigError: this is not the configuration of the last build.
    """
    config = cut_as_index(settle_embedder(config, current.manifest.embedder), store)
    models = models_of_last_build(config, store)
    keys = replay_keys(config, store, models, current.table("chunks"))
    keys |= snapshot_vector_keys(current, models.embedder, models.dim)

    def keep(record: Record) -> bool:
        return record.key in keys or "forms" in unpack_value(record.value)  # an endpoint's answer to a probe

    return purge(store, keep, lock.check)


def clear_workspace(store: Store, lock: BuildLock, removed: RemovedDocuments) -> None:
    """Remove finished work and unfinished snapshots, and redact records."""
    lock.check()
    store.delete("work")
    finished = finished_snapshots(store)
    for name in store.names("snapshots"):
        if name not in finished and is_snapshot_folder(name):
            lock.check()
            store.delete(snapshot_path(name))
    for name in store.names(CACHE):
        if name not in finished and is_snapshot_folder(name):
            store.delete(f"{CACHE}/{name}")
    search = TraceSearch(removed)
    for path in (BUILD, *(f"{BUILDS}/{name}" for name in store.names(BUILDS))):
        _redact_record(store, lock, search, path)
    if store.exists(DROPS):
        drops = store.read_json(DROPS)["drops"]
        kept = [drop for drop in drops if search.text(drop["unit_id"]) is None]
        if kept != drops:
            with lock.fenced():
                store.write_json(DROPS, {"drops": kept})
    for path in list(temporary_files(store, LEFTOVER_S, time.time())):
        store.delete(path)


def _drop_unused_rows(store: Store, config: Config, lock: BuildLock, leaving: Collection[str]) -> None:
    """Write snapshots again, without the rows of former ones in their files, in which former texts may be."""
    for name in finished_snapshots(store):
        if name not in leaving:
            lock.check()
            gone = write_whole(store, name)
            for folder in cached_folders(store, name, config.service.cache_dir):
                for file in gone:
                    (folder / file).unlink(missing_ok=True)


def _redact_record(store: Store, lock: BuildLock, search: TraceSearch, path: str) -> None:
    if not store.exists(path):
        return
    try:
        record = store.read_json(path)
    except StoreError:  # damaged: nothing can be read from it
        store.delete(path)
        return
    redacted = _redact(record, search, with_names=False)
    if redacted != record:
        with lock.fenced():
            store.write_json(path, redacted)


def _redact(value: Any, search: TraceSearch, with_names: bool) -> Any:
    if isinstance(value, str):
        return value if search.text(value, with_names) is None else _REDACTED
    if isinstance(value, dict):
        return {key: _redact(each, search, with_names or key in _FREE_TEXT) for key, each in value.items()}
    if isinstance(value, list):
        return [_redact(each, search, with_names) for each in value]
    return value


def remove_snapshots(
    store: Store, config: Config, lock: BuildLock, names: Sequence[str], older_than_s: float, now: float
) -> tuple[list[str], list[str]]:
    """Remove snapshots that have not been current for a time, their collections and derived files.

    Returns:
        The names of the collections that were dropped, and the snapshots that have to wait.

    Raises:
        BackendUnavailable: a Milvus that may have collections is out of reach; nothing is removed then.
    """
    history = record_current(store)
    present = store.names("snapshots")
    due: list[ExpiredSnapshot] = []
    waiting: list[str] = []
    for name in names:
        at = retired_at(store, name, history) if name in present else 0.0
        if at is None or now - at < older_than_s:
            waiting.append(name)
        else:
            due.append(ExpiredSnapshot(name, at, 0))
    removed = {snapshot.snapshot_id for snapshot in due}
    kept = tuple(name for name in present if name not in removed)
    plan = GcPlan(tuple(due), kept, orphans_of(store, present))
    dropped: list[str] = []
    with ExitStack() as stack:
        places = []
        for collections, shared in open_collections(store, config.vectors):
            stack.enter_context(collections)
            places.append((collections, collections_of(plan, collections, shared=shared)))
            dropped += places[-1][1]
        prune(store, lock, plan, places)
    for name in removed:
        for folder in cached_folders(store, name, config.service.cache_dir):
            shutil.rmtree(folder, ignore_errors=True)
    return dropped, waiting


logger = logging.getLogger(__name__)
GRACE_S = RetentionPolicy().older_than_s


@dataclass(frozen=True, slots=True)
class ForgetResult:
    """Outcome of a forgetting.

    Attributes:
        documents: ids of the documents, all versions.
        replies_dropped, replies_kept: records of the ledger, by the purge; None while it is not done.
        collections: names that were dropped in Milvus.
        waiting: old snapshots that hold the documents and are still within their grace period.
        findings: what still derives from the documents elsewhere; old snapshots stay until there is none.
        problems: obstacles, for people.
    """

    documents: tuple[str, ...]
    replies_dropped: int | None
    replies_kept: int | None
    collections: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """True if nothing in the index derives from the documents any more."""
        return not (self.waiting or self.findings or self.problems)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON-ready values."""
        return asdict(self) | {"complete": self.complete}


def run_forget(
    index_uri: str, config: Config, document_ids: Sequence[str], now: bool = False, wait_s: float = 0.0
) -> ForgetResult:
    """Take removed documents out of everything that the current snapshot does not need.

    The current snapshot must not have them: remove them first. Snapshots that hold them are removed when they have not
    been current for a day, by a later run or by `prune`.

    Args:
        document_ids: of documents that were removed, or their owner's source ids; none continues an earlier run.
        now: remove these snapshots at once. A service that still has one open may fail.

    Raises:
        InputError: a document is in the current snapshot, or no snapshot knows it.
        ConfigError: this is not the configuration of the last build.
        SnapshotNotFound: no snapshot is served.
    """
    store = Store(index_uri)
    served(store)  # before the lock, which would create a folder for a mistyped name
    with BuildLock(store, wait_s) as lock:
        return forget(store, config, lock, document_ids, 0.0 if now else GRACE_S)


def forget(
    store: Store,
    config: Config,
    lock: BuildLock,
    document_ids: Sequence[str],
    older_than_s: float,
) -> ForgetResult:
    """Forget documents, and those of an unfinished earlier run, as `run_forget` describes.

    Args:
        lock: held by the caller.
        older_than_s: seconds since a snapshot stopped being current before it is removed.
    """
    current = open_snapshot(store, served(store))
    pending, removed = _begin(store, lock, current, document_ids)
    if pending is None:
        return ForgetResult((), None, None)
    problems: list[str] = []
    if pending.replies_dropped is None:
        purged = purge_replies(store, config, lock, current)
        logger.info("the ledger: %d replies are kept, %d dropped", purged.kept, purged.dropped)
        if purged.held:
            logs = count_noun(len(purged.held), "log")
            problems.append(f"a process still writes to {logs} of the reply store; end it and run the command again")
        else:
            pending = replace(pending, replies_dropped=purged.dropped, replies_kept=purged.kept)
            with lock.fenced():
                write_pending(store, pending)
    findings: tuple[Finding, ...] = ()
    if not pending.verified:
        clear_workspace(store, lock, removed)
        _drop_unused_rows(store, config, lock, pending.snapshots)
        result = verify_removed(store, config, removed, without=pending.snapshots, with_collections=False)
        findings = result.findings
        problems += result.problems
        if _derives(current, removed):
            problems.append(
                "the current snapshot has summaries or reports that derive from a former text of a document: "
                f"`hirag-dist refresh --set update.staleness=0 --index {store.quoted}` writes them anew; then run "
                "this command again"
            )
        pending = replace(pending, verified=result.clean and not problems)
        with lock.fenced():
            write_pending(store, pending)
    collections: list[str] = []
    waiting = list(pending.snapshots)
    if pending.verified:
        try:
            collections, waiting = remove_snapshots(store, config, lock, pending.snapshots, older_than_s, time.time())
            found, unreachable = find_collections(store, config.vectors, ())
            findings += tuple(found)
            problems += unreachable
        except BackendUnavailable as error:
            problems.append(str(error))
    done = ForgetResult(
        pending.documents,
        pending.replies_dropped,
        pending.replies_kept,
        tuple(collections),
        tuple(waiting),
        findings,
        tuple(problems),
    )
    with lock.fenced():
        if done.complete:
            store.delete(FORGET)
        else:
            write_pending(store, replace(pending, snapshots=done.waiting, problems=done.problems))
    return done


def _begin(
    store: Store, lock: BuildLock, current: Snapshot, document_ids: Sequence[str]
) -> tuple[PendingForget | None, RemovedDocuments]:
    """Put the documents on record; None where there is nothing to do.

    Raises:
        InputError: a document is in the current snapshot, or no snapshot knows it, or none is named and no earlier run
            is unfinished.
    """
    before = pending_forget(store)
    known = set() if before is None else set(before.documents)
    rows = current.table("documents", ["document_id", "source_ids"]).to_pylist()
    present = {own for row in rows for own in (row["document_id"], *row["source_ids"])}
    if again := set(document_ids) & present:
        raise InputError(
            f"{first_names(again)}: in the current snapshot of {store.uri}; `hirag-dist remove` removes documents, and "
            "what was removed can be forgotten"
        )
    wanted = [*document_ids, *sorted(known - present)]  # one that was added again is not to be forgotten
    removed = find_removed(store, wanted, chunk_ids=() if before is None else before.chunks)
    if unknown := removed.unknown - known:
        raise InputError(f"no snapshot of {store.uri} has {first_names(unknown)}: nothing is known of what to forget")
    if not wanted:
        if before is None:
            raise InputError(
                f"no document of {store.uri} is being forgotten: name the documents by the ids that they had, with "
                "`hirag-dist remove ID… --forget`"
            )
        with lock.fenced():
            store.delete(FORGET)
        return None, removed
    own = current.manifest.snapshot_id
    snapshots = [
        name
        for name in finished_snapshots(store)
        if name != own and (name in removed.snapshots or _derives(open_snapshot(store, name), removed))
    ]
    chunks = removed.chunks["chunk_id"].to_pylist()
    with lock.fenced():
        return note_forget(store, {*removed.ids, *removed.unknown}, chunks, snapshots), removed


def _derives(snapshot: Snapshot, removed: RemovedDocuments) -> bool:
    """Return whether summaries or reports of a snapshot derive from removed texts: former ones of changed documents."""
    note = snapshot.manifest.update
    return note is not None and any(not removed.text_keys.isdisjoint(keys) for keys in note.replaced.values())
