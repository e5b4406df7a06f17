"""Builds, updates and cost estimates from Python."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

from hirag_dist.api import ConfigLike, as_config
from hirag_dist.application.build import BuildOptions, run_add, run_build, run_reembed, run_refresh, run_remove
from hirag_dist.application.index_result import IndexResult
from hirag_dist.composition.build_records import recorded_embedder, recorded_label_field, recorded_speeds
from hirag_dist.composition.models import (
    BUILD_ROLES,
    ask_windows,
    embedder_and_dim,
    index_windows,
    role_windows,
    settle_embedder,
)
from hirag_dist.config.model import Config
from hirag_dist.indexing.base import check_label_field
from hirag_dist.indexing.changed_documents import DocumentSelection
from hirag_dist.indexing.estimate import CostEstimate, estimate_build
from hirag_dist.indexing.reembed import ReembeddingEstimate, estimate_reembedding
from hirag_dist.indexing.window_sizes import fit_to_windows
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.protocols import EventListener
from hirag_dist.readers import check_inputs
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.store import Store

T = TypeVar("T")
Inputs = str | Path | Iterable[str | Path]
Run = Callable[[Config, BuildOptions, tuple[EventListener, ...]], IndexResult]


class BuildKeywords(TypedDict, total=False):
    """Keyword arguments of a build; `build_index` describes them."""

    config: ConfigLike
    max_usd: float | None
    max_tokens: int | None
    fresh: bool
    require_complete: bool
    wait_s: float
    make_current: bool
    progress: EventListener | None


def run_with(keywords: BuildKeywords, run: Run, **options: Any) -> IndexResult:
    """Run a build with the configuration, options and listeners that keyword arguments give.

    Args:
        options: further fields of `BuildOptions`.

    Raises:
        TypeError: a keyword has no such name.
    """
    for name in keywords:
        if name not in BuildKeywords.__annotations__:
            near = get_close_matches(name, BuildKeywords.__annotations__, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(BuildKeywords.__annotations__)}"
            raise TypeError(f"a build has no option {name!r}; {hint}")
    given: dict[str, Any] = {name: value for name, value in keywords.items() if name not in ("config", "progress")}
    build = BuildOptions(**given, **options)
    progress = keywords.get("progress")
    listeners = () if progress is None else (progress,)
    return outside_event_loops(lambda: run(as_config(keywords.get("config")), build, listeners))


def input_names(inputs: Inputs) -> list[str]:
    """Return INPUT arguments as strings."""
    return [str(inputs)] if isinstance(inputs, str | Path) else [str(item) for item in inputs]


def outside_event_loops(work: Callable[[], T]) -> T:
    """Return the result of work that runs event loops of its own; in a thread where one is running, as in notebooks."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1, thread_name_prefix="hirag-dist-build") as thread:
        return thread.submit(work).result()


def build_index(
    inputs: Inputs, index: str | Path, *, rebuild: bool = False, **options: Unpack[BuildKeywords]
) -> IndexResult:
    """Build an index of documents, or update one that exists, and publish a snapshot of it.

    On an index that exists, the documents of `inputs` are compared by content with those of the index: new and changed
    ones are extracted, those that are gone are removed, and only what they reach is made again. A repeated call
    continues an interrupted build and pays for no reply twice. With `execution.executor: auto`, the default, up to
    1,024 chunks are built in this process; for more, a local Ray starts and stops with the call.

    Args:
        inputs: files, folders, globs and object-store URIs; one or several.
        index: folder or object-store URI of the index.
        rebuild: build an index that exists from nothing; replies that are stored are not paid again.
        options: as keyword arguments. `config`: as `as_config`. `max_usd` and `max_tokens`: spending limits of this
            run, which stops before one is passed. `fresh`: run finished stages again, from nothing; paid replies are
            kept. `require_complete`: publish nothing while units have failed. `wait_s`: seconds to wait for another
            build of the index to end. `make_current`: serve the snapshot even if `current` was set back from that
            very snapshot. `progress`: called with each event of `hirag_dist.execution.events`, from the thread that
            builds.

    Returns:
        Counts, layers, cost and snapshot id. `complete` is False if there are dead letters. `update` says what an
        update did, and `rebuilt_because` why an index that existed was built from nothing.

    Raises:
        InputError: there is nothing to read.
        ConfigError: the configuration is invalid.
        BudgetReached: a spending limit was reached; a repeated call continues.
        IndexBusy: another build holds the index.
        StageFailed: too many units of a stage failed.
        ModelError: an endpoint cannot be used.
        TypeError: an option has no such name.
    """
    return run_with(
        options,
        lambda config, build, listeners: run_build(input_names(inputs), str(index), config, build, listeners),
        rebuild=rebuild,
    )


def plan_build(
    inputs: Inputs,
    index: str | Path | None = None,
    *,
    config: ConfigLike = None,
    tokens_per_s: float | None = None,
    add: bool = False,
) -> CostEstimate:
    """Estimate the calls, tokens, cost and time of a build, or of the update of an index; calls no model.

    Args:
        inputs: as `build_index`.
        index: Folder or object-store URI of an index whose update is estimated; its documents are compared with
            `inputs` by content. None for a new index.
        config: as `as_config`; its endpoints have the prices and limits.
        tokens_per_s: Tokens a second of an endpoint's replies, all calls together; by default as in the index's builds.
        add: estimate `add_documents`: the documents of the index stay.

    Raises:
        InputError: there is nothing to read.
        SnapshotNotFound: there is no such index.
        ConfigError: the configuration is invalid, or its embedder is not that of the index.
    """
    given, names = as_config(config), input_names(inputs)
    check_inputs(names)
    if index is None:
        snapshot, vectors, speeds = None, None, {}
        loaded = ask_windows(given, BUILD_ROLES)
        windows = role_windows(loaded, BUILD_ROLES)
    else:
        store = Store(str(index))
        snapshot = open_current(store)
        recorded = recorded_label_field(store)
        check_label_field(store, given.reading.label_field, recorded, snapshot.manifest.snapshot_id)
        loaded = ask_windows(settle_embedder(given, recorded_embedder(store)), BUILD_ROLES)
        windows, speeds, vectors = index_windows(given, loaded, store), recorded_speeds(store), embedder_and_dim(loaded)
    if tokens_per_s is not None:
        speeds |= {name: tokens_per_s for name, endpoint in loaded.llm.endpoints.items() if endpoint.is_remote}
    prompts = load_prompts(loaded.prompts)
    cut = fit_to_windows(loaded, windows, prompts)
    made = estimate_build(names, cut, prompts, speeds, snapshot=snapshot, add=add, vectors=vectors)
    return replace(made, windows=windows)


def plan_reembedding(index: str | Path, *, config: ConfigLike = None) -> ReembeddingEstimate:
    """Estimate the new vectors that `reembed_index` would make; calls no model.

    Args:
        index: folder or object-store URI of the index.
        config: as `as_config`; the endpoint of its role `embed` has the price and the limits.

    Raises:
        SnapshotNotFound: there is no index.
        ConfigError: the configuration is invalid.
    """
    loaded = settle_embedder(as_config(config), None)
    snapshot = open_current(Store(str(index)))
    note = snapshot.manifest.update
    recorded = {} if note is None else note.decisive
    if embedder_and_dim(loaded) == (recorded.get("embedder"), recorded.get("dim")):
        return ReembeddingEstimate(snapshot.manifest.snapshot_id)
    return estimate_reembedding(snapshot, loaded)


def add_documents(inputs: Inputs, index: str | Path, **options: Unpack[BuildKeywords]) -> IndexResult:
    """Add documents to an index and publish a snapshot with them.

    A document of the same place (path and record) as one of the index, with another text, replaces it; all others of
    the index stay.

    Args:
        inputs: files, folders, globs and object-store URIs; one or several.
        index: folder or object-store URI of the index.
        options: as `build_index`.

    Raises:
        SnapshotError: there is no index, or none that can be updated.
        HiragError: see `build_index`.
    """
    return run_with(
        options, lambda config, build, listeners: run_add(input_names(inputs), str(index), config, build, listeners)
    )


def remove_documents(
    ids: Iterable[str], index: str | Path, *, sources: Iterable[str] = (), **options: Unpack[BuildKeywords]
) -> IndexResult:
    """Remove documents from an index and publish a snapshot in which nothing derives from them.

    Args:
        ids: document ids, or the owner's ids of records.
        index: folder or object-store URI of the index.
        sources: glob patterns of the documents' paths, such as `reports/2019/*`.
        options: as `build_index`.

    Raises:
        InputError: an id or pattern names no document of the index, or all documents are named.
        SnapshotError: there is no index, or none that can be updated.
        HiragError: see `build_index`.
    """
    if isinstance(ids, str):
        raise TypeError(f"ids is a list of ids, not a string: [{ids!r}]")
    selection = DocumentSelection(tuple(ids), tuple(sources))
    return run_with(
        options, lambda config, build, listeners: run_remove(selection, str(index), config, build, listeners)
    )


def refresh_index(index: str | Path, *, all_reports: bool = False, **options: Unpack[BuildKeywords]) -> IndexResult:
    """Write the summaries and reports that updates have put off, and publish a snapshot with them.

    Args:
        index: folder or object-store URI of the index.
        all_reports: write reports too that `communities.report_share` leaves out.
        options: as `build_index`, except that `max_tokens` and `max_usd` choose what is written: the oldest and most
            stale texts that fit, about; the rest stays due.

    Raises:
        SnapshotError: there is no index, or none that can be updated.
        ConfigError: `max_usd` is given, and no price of the replies is known.
        HiragError: see `build_index`.
    """
    return run_with(
        options, lambda config, build, listeners: run_refresh(str(index), config, build, listeners, all_reports)
    )


def reembed_index(index: str | Path, **options: Unpack[BuildKeywords]) -> IndexResult:
    """Make the vectors of an index with the configured embedder and publish a snapshot with them; no chat call is made.

    Documents, entities, clusters, summaries, communities and reports stay as they are; `plan_reembedding` estimates the
    cost. Where the embedder is that of the index, nothing is done.

    Args:
        index: folder or object-store URI of the index.
        options: as `build_index`; the configuration names the new embedder.

    Raises:
        SnapshotError: there is no index, or none that can be updated.
        HiragError: see `build_index`.
    """
    return run_with(options, lambda config, build, listeners: run_reembed(str(index), config, build, listeners))
