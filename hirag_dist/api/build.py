"""Builds and cost estimates from Python."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Unpack

from hirag_dist.api.build_keywords import BuildKeywords, Inputs, input_names, run_with
from hirag_dist.api.config import ConfigLike, as_config
from hirag_dist.application.build import run_build
from hirag_dist.application.index_result import IndexResult
from hirag_dist.composition.build_records import recorded_embedder, recorded_speeds
from hirag_dist.composition.models import BUILD_ROLES, embedder_and_dim, settle_embedder
from hirag_dist.composition.windows import ask_windows, index_windows, role_windows
from hirag_dist.config.model import Config
from hirag_dist.indexing.estimate import CostEstimate, estimate_build
from hirag_dist.indexing.update.estimate import UpdateEstimate, estimate_update
from hirag_dist.indexing.update.reembed import ReembeddingEstimate, estimate_reembedding
from hirag_dist.indexing.window_sizes import fit_to_windows
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.store import Store


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


async def build_index_async(
    inputs: Inputs, index: str | Path, *, rebuild: bool = False, **options: Unpack[BuildKeywords]
) -> IndexResult:
    """Build an index in a thread of the running event loop; arguments and errors as `build_index`.

    Cancelling the awaiting task does not stop the build, which continues in its thread.
    """
    return await asyncio.to_thread(build_index, inputs, index, rebuild=rebuild, **options)


def plan_build(
    inputs: Inputs,
    *,
    config: ConfigLike = None,
    latency_s: float | None = None,
    tokens_per_s: float | None = None,
) -> CostEstimate:
    """Estimate the calls, tokens, cost and time of an index; calls no model.

    Args:
        inputs: as `build_index`.
        config: as `as_config`; its endpoints have the prices and limits.
        latency_s: seconds that a chat call takes; by default estimated from its output tokens.
        tokens_per_s: Tokens a second of an endpoint's replies, all calls together, as `hirag-dist doctor` measures.

    Raises:
        InputError: there is nothing to read.
        ConfigError: the configuration is invalid.
    """
    loaded = ask_windows(as_config(config), BUILD_ROLES)
    prompts = load_prompts(loaded.prompts)
    cut = fit_to_windows(loaded, role_windows(loaded, BUILD_ROLES), prompts)
    return estimate_build(input_names(inputs), cut, prompts, latency_s, _speeds(loaded, tokens_per_s))


def plan_update(
    inputs: Inputs,
    index: str | Path,
    *,
    config: ConfigLike = None,
    latency_s: float | None = None,
    tokens_per_s: float | None = None,
    add: bool = False,
) -> UpdateEstimate:
    """Estimate the update of an index that `build_index` would make, or `add_documents`; calls no model.

    Args:
        inputs: as `build_index`; they are read and compared with the documents of the index by content.
        index: folder or object-store URI of the index.
        config: as `as_config`; its endpoints have the prices and limits.
        latency_s: seconds that a chat call takes; by default estimated from its output tokens.
        tokens_per_s: Tokens a second of an endpoint's replies, all calls together; by default as in the index's builds.
        add: estimate `add_documents`: the documents of the index stay.

    Raises:
        InputError: there is nothing to read.
        SnapshotNotFound: there is no index.
        ConfigError: the configuration is invalid, or its embedder is not that of the index.
    """
    given, store = as_config(config), Store(str(index))
    snapshot = open_current(store)
    loaded = ask_windows(settle_embedder(given, recorded_embedder(store)), BUILD_ROLES)
    prompts = load_prompts(loaded.prompts)
    cut = fit_to_windows(loaded, index_windows(given, loaded, store), prompts)
    speeds = recorded_speeds(store) | _speeds(loaded, tokens_per_s)
    vectors = embedder_and_dim(loaded)
    return estimate_update(input_names(inputs), snapshot, cut, prompts, latency_s, speeds, add=add, vectors=vectors)


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
    recorded = snapshot.manifest.notes.get("update", {}).get("decisive", {})
    if embedder_and_dim(loaded) == (recorded.get("embedder"), recorded.get("dim")):
        return ReembeddingEstimate(snapshot.manifest.snapshot_id)
    return estimate_reembedding(snapshot, loaded)


def _speeds(config: Config, tokens_per_s: float | None) -> dict[str, float]:
    """Return the speed of each endpoint; none where none is given."""
    if tokens_per_s is None:
        return {}
    return {name: tokens_per_s for name, endpoint in config.llm.endpoints.items() if endpoint.is_remote}
