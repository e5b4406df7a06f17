"""`hirag-dist prune`: removal of old snapshots and their collections in Milvus."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Annotated

import typer

from hirag_dist.application.forget import forget
from hirag_dist.application.removal.pending import pending_forget
from hirag_dist.cli._options import ConfigOptions, IndexOption, WaitOption
from hirag_dist.cli._output import emit, err, out, seconds, table
from hirag_dist.config.model import VectorsConfig
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import BackendUnavailable
from hirag_dist.retrieval.vector_index.milvus import MilvusCollections, lite_collections, server_collections
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.snapshot import gc
from hirag_dist.storage.snapshot.gc import GcPlan, RetentionPolicy, collections_of, plan_gc, served
from hirag_dist.storage.store import Store


def prune(
    index: IndexOption,
    options: ConfigOptions,
    keep: Annotated[
        int,
        typer.Option(
            min=0, help="Snapshots to keep in addition to the current one: the most recently current, of any age."
        ),
    ] = 1,
    older_than: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Remove only snapshots that have not been current for this long: 90m, 12h, 1d, 2w. A running "
            "service may have a more recent one open.",
        ),
    ] = "1d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    wait: WaitOption = 0.0,
) -> None:
    """Remove old snapshots of an index, what was derived from them, and their collections in Milvus.

    The current snapshot and that of the last build always stay; paid replies and finished work are not touched. Use the
    --config of the services: it names the Milvus server with their collections. An unfinished `remove --forget` is
    continued first.
    """
    rule = RetentionPolicy(keep, seconds(older_than, "--older-than"))
    loaded = options.load()
    store = Store(index)
    served(store)  # before the lock, which would create a folder for a mistyped name
    with BuildLock(store, wait) as lock, ExitStack() as stack:
        forgotten = None
        if not dry_run and pending_forget(store) is not None:
            forgotten = forget(store, loaded, lock, (), rule.older_than_s)
        plan = plan_gc(store, rule, time.time())
        places = []
        for collections, shared in _places(store, loaded.vectors):
            stack.enter_context(collections)
            places.append((collections, collections_of(plan, collections, shared=shared)))
        if not dry_run:
            gc.prune(store, lock, plan, places)
    dropped = [name for _, names in places for name in names]
    if options.json:
        emit(_report(store, plan, dropped, dry_run) | {"forgotten": forgotten and forgotten.to_dict()})
        return
    _show(plan, dropped, dry_run)
    if forgotten is not None:
        done = "forgotten" if forgotten.complete else "still to be forgotten; `hirag-dist status` says why"
        out.print(f"{count_noun(len(forgotten.documents), 'removed document')}: {done}.")


def _places(store: Store, vectors: VectorsConfig) -> Iterator[tuple[MilvusCollections, bool]]:
    """Yield the Milvus servers that may have collections, and whether other indexes share them."""
    if vectors.uri:
        yield server_collections(vectors), True
    try:
        lite = lite_collections(store)
    except BackendUnavailable as error:
        err.print(f"Collections in Milvus Lite stay until the next run: {error}")
        return
    if lite is not None:
        yield lite, False


def _report(store: Store, plan: GcPlan, dropped: list[str], dry_run: bool) -> dict[str, object]:
    return {
        "index": store.uri,
        "dry_run": dry_run,
        "removed": [
            {"snapshot": one.snapshot_id, "retired_at": _time(one.retired_at), "bytes": one.size_bytes}
            for one in plan.snapshots
        ],
        "kept": list(plan.kept),
        "collections": dropped,
        "derived": list(plan.orphans),
        "bytes": sum(one.size_bytes for one in plan.snapshots),
    }


def _show(plan: GcPlan, dropped: list[str], dry_run: bool) -> None:
    rows = [
        (one.snapshot_id, _time(one.retired_at) or "never finished", f"{one.size_bytes / 1e6:,.1f}")
        for one in plan.snapshots
    ]
    if rows:
        title = "Would be removed" if dry_run else "Removed"
        out.print(table(title, ["snapshot", "current until", "MB"], rows, right=(2,)))
    verb = "would be removed" if dry_run else "removed"
    out.print(
        f"{count_noun(len(rows), 'snapshot')} and {count_noun(len(dropped), 'collection')} {verb}, "
        f"{sum(one.size_bytes for one in plan.snapshots) / 1e6:,.1f} MB; "
        f"{count_noun(len(plan.kept), 'snapshot stays', 'snapshots stay')}."
    )


def _time(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
