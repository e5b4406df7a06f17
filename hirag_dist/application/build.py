"""One run on an index: build, add, remove, refresh, reembed or import. A build starts in `run_build`.

Each takes the lock, resolves models, makes the executor, keeps a record and returns a result.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from hirag_dist.application.index_result import IndexResult, letter_groups
from hirag_dist.composition.build import make_executor, resolve
from hirag_dist.composition.build_records import (
    BuildArguments,
    BuildRecord,
    build_usage,
    last_build,
    note_not_begun,
    recorded_embedder,
    recorded_label_field,
)
from hirag_dist.composition.models import (
    BUILD_ROLES,
    check_limits,
    check_prices,
    index_windows,
    role_windows,
    settle_embedder,
    warn_of_idle_limit,
    with_windows,
)
from hirag_dist.compute.kernels import has_gpu_workers
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.text.tokens import counter
from hirag_dist.errors import ConfigError, IndexBusy, InputError, SnapshotError, StoreError, WorkFileDamaged
from hirag_dist.execution.events import UsageRecorded
from hirag_dist.execution.executors import return_freed_memory
from hirag_dist.execution.runner import StageRunner
from hirag_dist.execution.tracing import traced_build
from hirag_dist.indexing.base import check_label_field
from hirag_dist.indexing.budget import bill_rows
from hirag_dist.indexing.changed_documents import DocumentSelection
from hirag_dist.indexing.context import BuildContext, ResolvedModels
from hirag_dist.indexing.pipeline import Build, BuildResult
from hirag_dist.indexing.window_sizes import fit_to_windows, size_changes
from hirag_dist.interop.importers import ImportedGraph, read_working_folder
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.llm.reply_store import Ledger, compact
from hirag_dist.llm.usage import UsageMeter, added, usage_rows
from hirag_dist.protocols import EventListener
from hirag_dist.readers import check_inputs, find_inputs
from hirag_dist.storage.layout import BUILD, BUILDS, CACHE, CURRENT, LOCK, MANIFEST, SNAPSHOTS, WORK, snapshot_path
from hirag_dist.storage.lock import GUARD, BuildLock
from hirag_dist.storage.snapshot.documents import tokens_per_corpus_token
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.snapshot.reader import current_id, no_index, open_snapshot
from hirag_dist.storage.spill import spill_file
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)
Action = Literal["index", "add", "remove", "refresh", "reembed", "import", "retry"]


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """Options of one run that do not change the content of the index; `hirag_dist.build_index` describes them."""

    max_usd: float | None = None
    max_tokens: int | None = None
    fresh: bool = False
    require_complete: bool = False
    wait_s: float = 0.0
    make_current: bool = False
    rebuild: bool = False

    def __post_init__(self) -> None:
        check_limits(self.max_usd, self.max_tokens)

    @property
    def limits(self) -> dict[str, float | None]:
        """Spending limits, for the build record."""
        return {"max_usd": self.max_usd, "max_tokens": self.max_tokens}


def run_build(
    inputs: Sequence[str],
    index_uri: str,
    config: Config,
    options: BuildOptions | None = None,
    listeners: Sequence[EventListener] = (),
) -> IndexResult:
    """Build an index of files and publish its snapshot; after an interruption, call it again to continue.

    Raises:
        InputError: there is nothing to read.
        StageFailed: a stage has too many dead letters, or any with `require_complete`.
        BudgetReached: a spending limit was reached.
        IndexBusy: another build holds the index.
    """
    store, rebuild = Store(index_uri), options is not None and options.rebuild
    if store.exists(BUILD):  # an INPUT that names nothing is refused before a call is paid
        check_inputs(inputs)
    else:  # and leaves no folder behind
        find_inputs(inputs, follow_links=config.reading.follow_links)
    arguments = BuildArguments.of("index", config, inputs, rebuild=rebuild)
    return execute_build(config, store, "index", arguments, options, lambda build: build.index(inputs), listeners)


def run_add(
    inputs: Sequence[str],
    index_uri: str,
    config: Config,
    options: BuildOptions | None = None,
    listeners: Sequence[EventListener] = (),
) -> IndexResult:
    """Add documents to an index; one of the same place, (URI, record), replaces the former. See `run_build`.

    Raises:
        SnapshotError: there is no index, or none that can be updated.
    """
    arguments, store = BuildArguments.of("add", config, inputs), _existing(index_uri)
    check_inputs(inputs)
    return execute_build(config, store, "add", arguments, options, lambda build: build.add(inputs), listeners)


def run_remove(
    selection: DocumentSelection,
    index_uri: str,
    config: Config,
    options: BuildOptions | None = None,
    listeners: Sequence[EventListener] = (),
) -> IndexResult:
    """Remove documents from an index. See `run_build`.

    Raises:
        InputError: the index has no document that the selection names, or no other.
    """
    arguments = BuildArguments.of("remove", config, removed=selection.ids, sources=selection.sources)
    return execute_build(
        config, _existing(index_uri), "remove", arguments, options, lambda build: build.remove(selection), listeners
    )


def run_refresh(
    index_uri: str,
    config: Config,
    options: BuildOptions | None = None,
    listeners: Sequence[EventListener] = (),
    all_reports: bool = False,
) -> IndexResult:
    """Write the summaries and reports of an index that updates have put off. See `run_build`.

    Args:
        options: its limits choose what is written: the oldest and most stale texts that fit, about; all that are due
            without a limit.

    Raises:
        ConfigError: a limit in dollars is given, and no price of the replies is known.
    """
    given = options or BuildOptions()
    limits = [] if given.max_tokens is None else [given.max_tokens]
    if given.max_usd is not None:
        limits.append(tokens_for(index_uri, given.max_usd))
    budget_tokens = min(limits, default=None)
    return execute_build(
        config,
        _existing(index_uri),
        "refresh",
        BuildArguments.of("refresh", config, all_reports=all_reports),
        replace(given, max_usd=None, max_tokens=None),
        lambda build: build.refresh(budget_tokens, all_reports),
        listeners,
    )


def run_reembed(
    index_uri: str,
    config: Config,
    options: BuildOptions | None = None,
    listeners: Sequence[EventListener] = (),
) -> IndexResult:
    """Make the vectors of an index with the configured embedder; all texts stay. See `run_build`."""
    arguments, store = BuildArguments.of("reembed", config), _existing(index_uri)
    return execute_build(config, store, "reembed", arguments, options, lambda build: build.reembed(), listeners)


def run_import(
    graph: ImportedGraph,
    folder: str,
    index_uri: str,
    config: Config,
    options: BuildOptions | None = None,
    listeners: Sequence[EventListener] = (),
) -> IndexResult:
    """Build the hierarchy on a graph that another tool extracted and publish its snapshot.

    Args:
        graph: content of `folder`; its communities and reports are kept if it has any.
        folder: working folder of the other tool, for the build record.
    """
    communities = "new" if graph.communities is None else "keep"
    arguments = BuildArguments.of("import", config, folder=folder, left_out=graph.left_out, communities=communities)
    return execute_build(
        config, Store(index_uri), "import", arguments, options, lambda build: build.index_graph(graph), listeners
    )


def read_import(folder: str, config: Config, keep_communities: bool = False) -> ImportedGraph:
    """Return the graph of another tool's working folder, with its communities and reports on request.

    Raises:
        InputError: the folder is of no known tool, or damaged.
    """
    return read_working_folder(folder, counter(config.tokenizer), keep_communities)


def _check_folder(store: Store) -> None:
    """Refuse a folder of something else, of which builds and `prune` would remove what an index has under that name.

    A build that was interrupted left a mark before any such folder. A reply store may be copied here before it.

    Raises:
        InputError: the folder is no index, and holds folders that an index has.
    """
    if not {BUILD, CURRENT, LOCK, GUARD}.isdisjoint(store.names("")):
        return
    taken = [name for name in (WORK, SNAPSHOTS, CACHE, BUILDS, "reports", "milvus") if store.names(name)]
    if taken and not any(store.exists(f"{snapshot_path(name)}/{MANIFEST}") for name in store.names(SNAPSHOTS)):
        raise InputError(
            f"{store.uri} is no index and holds {', '.join(taken)}, where an index removes what it does not know: give "
            f"the index a folder of its own, such as {store.uri}/index"
        )


def execute_build(
    config: Config,
    store: Store,
    action: Action,
    arguments: BuildArguments,
    options: BuildOptions | None,
    work: Callable[[Build], BuildResult],
    listeners: Sequence[EventListener] = (),
    check: Callable[[Build], None] = lambda build: None,
    base_id: str | None = "",
) -> IndexResult:
    """Run one build under the lock, with a build record.

    Args:
        action: the command, for the record; `retry` gives refused units new attempts.
        check: may refuse the build before the previous record is archived.
        base_id: the snapshot that an update starts from; None builds from nothing; empty: the current one.
    """
    started = time.perf_counter()
    options = options or BuildOptions()
    return_freed_memory()
    prompts = load_prompts(config.prompts)
    store.check_writable()
    _check_folder(store)
    check_prices(config, (*BUILD_ROLES, "embed"), options.max_usd)
    warn_of_idle_limit(config, (*BUILD_ROLES, "embed"), options.max_tokens)
    with (
        BuildLock(store, options.wait_s) as lock,
        spill_file() as spill,
        traced_build(config.traces_endpoint, action) as tracing,
    ):
        is_free = options.fresh or arguments.command == "reembed"  # to take another embedder than the index has
        config = settle_embedder(config, None if is_free else recorded_embedder(store))
        _compact_ledger(store, lock)
        probes, begun = UsageMeter(), datetime.now(UTC)
        try:
            config, models = _resolve(config, store, prompts, options, probes)
        except BaseException as error:
            with suppress(StoreError, IndexBusy):  # the error of the models is the one to raise
                note_not_begun(store, action, arguments, config, options.limits, probes, error, begun, lock.fenced)
            raise

        def emit(event: object) -> None:
            for listener in listeners:
                listener(event)

        traceparent = ""
        if tracing is not None:
            traceparent, listeners = tracing.traceparent, (*listeners, tracing)
        executor = make_executor(config, store, options.max_usd, options.max_tokens, models.kernels, emit, traceparent)
        try:
            runner = StageRunner(
                store, executor, (), config.max_reject_ratio, options.fresh, action == "retry", lock.fenced
            )
            context = BuildContext(runner, config, prompts, models)
            base_id = None if options.rebuild or options.fresh else base_id
            build = Build(
                context,
                force_current=options.make_current,
                require_complete=options.require_complete,
                base_id=base_id,
                spill=spill,
            )
            check(build)
            if arguments.command in ("index", "add") and not arguments.rebuild:
                check_label_field(store, config.reading.label_field, recorded_label_field(store), base_id or None)
            if arguments.command in ("index", "add", "remove", "refresh"):
                build.check_base()
            if action in ("add", "remove", "refresh"):
                build.require_base()
            runner.bill.earlier = _paid_before(store)
            record = BuildRecord(
                store,
                action,
                arguments,
                config,
                build.decisive(),
                options.limits,
                fence=lock.fenced,
                base=base_id,
                begun=begun,
                bill=runner.bill,
            )
            runner.listeners = (*listeners, record)
            if probes.uses:
                runner.emit(UsageRecorded("probes", probes))
            with record.closed():
                result = _repairing(runner, lambda: work(build))
                record.close_published(result.manifest.snapshot_id)
        finally:
            executor.close()
    return _index_result(store, result, runner, time.perf_counter() - started)


def _paid_before(store: Store) -> list[dict[str, Any]] | None:
    """Return rows of USAGE that runs paid since an index was built from nothing; None where that is not known."""
    record = last_build(store) or {}
    if record.get("bill") is not None:
        return list(record["bill"])
    if current_id(store) is None:
        return added(build_usage(record)) if record else []
    with suppress(SnapshotError):  # the build finds another base, or none
        return bill_rows(open_current(store, warn=False))
    return None


def _repairing(runner: StageRunner, work: Callable[[], BuildResult]) -> BuildResult:
    """Return the result of the pipeline, which begins again where a file of the work folder turns out damaged.

    Finished stages are reused, and replies are in the ledger: only what was damaged is made again.
    """
    while True:
        try:
            return work()
        except WorkFileDamaged as error:
            runner.repair(error)


def _existing(index_uri: str) -> Store:
    """Return the store of an index that is published; the lock would create a folder for a mistyped name."""
    store = Store(index_uri)
    if current_id(store) is None:
        raise no_index(store)
    return store


def _index_result(store: Store, result: BuildResult, runner: StageRunner, seconds: float) -> IndexResult:
    """Return the outcome of a build whose snapshot is published."""
    snapshot = open_snapshot(store, result.manifest.snapshot_id)
    usage = usage_rows(snapshot.table("usage"))
    letters = snapshot.table("rejects", ["stage", "reason"])
    groups = letter_groups(letters["stage"].to_pylist(), letters["reason"].to_pylist(), usage)
    return IndexResult(
        **vars(result),
        index_uri=store.uri,
        layers=tuple(snapshot.table("layers").to_pylist()),
        communities_by_level=snapshot.info().communities_by_level,
        usage=tuple(usage),
        tokens_per_corpus_token=tokens_per_corpus_token(snapshot, usage),
        sent=runner.bill.sent,
        seconds=seconds,
        repaired=tuple(runner.repaired),
        letter_groups=tuple(groups),
    )


def _resolve(
    config: Config, store: Store, prompts: Prompts, options: BuildOptions, probes: UsageMeter
) -> tuple[Config, ResolvedModels]:
    """Return the configuration with no size larger than the models' windows allow, and the capabilities of the models.

    The servers are asked for windows after the probes: some load a model with its first call, and tell its window then.
    """
    kernels = None if options.fresh and config.kernels == "gpu" else _previous_kernels(config, store)
    models = resolve(config, Ledger(store), kernels, options.max_usd, options.max_tokens, probes)
    asked = asyncio.run(with_windows(config, BUILD_ROLES))
    now = role_windows(asked, BUILD_ROLES)
    windows = now if options.rebuild or options.fresh else index_windows(config, asked, store)
    fitted = fit_to_windows(asked, windows, prompts)
    if cuts := size_changes(asked, fitted):
        logger.info("sizes in tokens, cut to the models' context windows: %s", "; ".join(cuts))
    if any(window < windows.get(role, math.inf) for role, window in now.items()):
        _say_smaller_windows(asked, fitted, now, prompts, store)
    return fitted, replace(models, windows=windows)


def _say_smaller_windows(asked: Config, kept: Config, now: Mapping[str, int], prompts: Prompts, store: Store) -> None:
    """Warn of sizes that an index keeps although they are larger than the windows of now allow."""
    try:
        changes = size_changes(kept, fit_to_windows(asked, now, prompts))
    except ConfigError as error:
        changes = [str(error)]
    if changes:
        logger.warning(
            "%s keeps the sizes that it was begun with, and the context windows of its models are smaller now: prompts "
            "that do not fit are asked in parts; --rebuild cuts it anew (%s)",
            store.uri,
            "; ".join(changes),
        )


def _previous_kernels(config: Config, store: Store) -> str | None:
    """Return the kernels of the index: those of its current snapshot.

    With separate GPU workers the record of an unfinished build takes precedence, so that it continues with the
    kernels that its worker named.
    """
    if has_gpu_workers(config):
        with suppress(StoreError):  # a damaged record is none
            if kernels := (last_build(store) or {}).get("decisive", {}).get("kernels"):
                return str(kernels)
    if current_id(store) is None:
        return None
    try:
        return str(open_current(store, warn=False).manifest.build["kernels"])
    except (SnapshotError, KeyError):  # of another version, or damaged: the build makes a new one
        return None


def _compact_ledger(store: Store, lock: BuildLock) -> None:
    """Compact the ledger if it is due; a failure does not stop the build."""
    try:
        compact(store, lock.check)
    except StoreError as error:
        logger.warning("the ledger was not compacted: %s", error)


_WRITING_ROLES = ("summarise", "report")
_CHAT_ROLES = (*_WRITING_ROLES, "extract")


def tokens_for(index_uri: str, usd: float) -> int:
    """Return the tokens of summaries and reports that an amount pays, at the price that the last build paid.

    Raises:
        ConfigError: the last build had no reply, or they cost nothing, or their price is not known.
    """
    usage = open_snapshot(Store(index_uri)).table("usage", ["role", "input_tokens", "output_tokens", "cost_usd"])
    chat = [row for row in usage.to_pylist() if row["role"] in _CHAT_ROLES]
    rows = [row for row in chat if row["role"] in _WRITING_ROLES] or chat
    tokens = sum(row["input_tokens"] + row["output_tokens"] for row in rows)
    cost = sum(row["cost_usd"] for row in rows)
    if not tokens or not cost or math.isnan(cost):
        raise ConfigError(
            f"the last build of {index_uri} has no replies with a price, so dollars cannot be turned into tokens: "
            "limit the refresh in tokens instead"
        )
    return int(usd / cost * tokens)
