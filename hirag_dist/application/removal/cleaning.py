"""Removal of what derives from removed documents outside the current snapshot. Each step can be repeated."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from hirag_dist.application.removal.evidence import RemovedDocuments, finished_snapshots
from hirag_dist.application.removal.search import TraceSearch, temporary_files
from hirag_dist.application.removal.verification import LEFTOVER_S, open_collections
from hirag_dist.application.stored_replies import models_of_last_build, replay_keys, snapshot_vector_keys
from hirag_dist.composition.models import cut_as_index, settle_embedder
from hirag_dist.config.model import Config
from hirag_dist.errors import StoreError
from hirag_dist.llm.reply_store import PurgeResult, purge
from hirag_dist.llm.reply_store.block_format import Record, unpack_value
from hirag_dist.storage.layout import BUILD, BUILDS, CACHE, DROPS, snapshot_path
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.snapshot.cache import cached_folders
from hirag_dist.storage.snapshot.gc import ExpiredSnapshot, GcPlan, collections_of, prune
from hirag_dist.storage.snapshot.history import record_current, retired_at
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)
_REDACTED = "(removed)"
_FREE_TEXT = frozenset({"error", "why"})  # keys of records whose values may quote a text


def purge_replies(store: Store, config: Config, lock: BuildLock, current: Snapshot) -> PurgeResult:
    """Keep the stored replies that layer 0 of the current snapshot rests on, and drop all others.

    The keys to keep are computed from the text of its chunks alone, so no kept reply derives from anything else.
    A part of a reply to several units counts as the reply to its own unit.

    Raises:
        ConfigError: this is not the configuration of the last build.
        StoreError: the ledger cannot be read or written.
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
        if name not in finished:
            lock.check()
            store.delete(snapshot_path(name))
    for name in store.names(CACHE):
        if name not in finished and not name.startswith("."):
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
    orphans = tuple(name for name in sorted(store.names(CACHE)) if not name.startswith(".") and name not in present)
    plan = GcPlan(tuple(due), kept, orphans)
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
