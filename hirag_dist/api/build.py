"""Builds and cost estimates from Python."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from hirag_dist.api.config import ConfigLike, as_config
from hirag_dist.composition.index_result import IndexResult
from hirag_dist.composition.indexing import BuildOptions, run_build
from hirag_dist.indexing.cost_estimate import CostEstimate, estimate_build
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.protocols import EventListener

T = TypeVar("T")
Inputs = str | Path | Iterable[str | Path]


def build_index(
    inputs: Inputs,
    index: str | Path,
    *,
    config: ConfigLike = None,
    max_usd: float | None = None,
    max_tokens: int | None = None,
    fresh: bool = False,
    require_complete: bool = False,
    wait_s: float = 0.0,
    make_current: bool = False,
    progress: EventListener | None = None,
) -> IndexResult:
    """Build an index of documents and publish a snapshot of it.

    A repeated call continues an interrupted build and pays for no reply twice. With `execution.executor: ray`, the
    default, a local Ray starts and stops with the call.

    Args:
        inputs: files, folders, globs and object-store URIs; one or several.
        index: folder or object-store URI of the index.
        config: as `as_config`.
        max_usd, max_tokens: spending limits of this run; it stops before one is passed.
        fresh: run finished stages again; paid replies are kept.
        require_complete: publish nothing while units have failed.
        wait_s: seconds to wait for another build of the index to end.
        make_current: serve the snapshot even if `current` was set back from that very snapshot.
        progress: called with each event of `hirag_dist.execution.events`, from the thread that builds.

    Returns:
        Counts, layers, cost and snapshot id. `complete` is False if there are dead letters.

    Raises:
        InputError: there is nothing to read.
        ConfigError: the configuration is invalid.
        BudgetReached: a spending limit was reached; a repeated call continues.
        IndexBusy: another build holds the index.
        StageFailed: too many units of a stage failed.
        ModelError: an endpoint cannot be used.
    """
    options = BuildOptions(
        max_usd=max_usd,
        max_tokens=max_tokens,
        fresh=fresh,
        require_complete=require_complete,
        wait_s=wait_s,
        force_current=make_current,
    )
    listeners = () if progress is None else (progress,)
    return _outside_event_loops(lambda: run_build(_strings(inputs), str(index), as_config(config), options, listeners))


async def build_index_async(
    inputs: Inputs,
    index: str | Path,
    *,
    config: ConfigLike = None,
    max_usd: float | None = None,
    max_tokens: int | None = None,
    fresh: bool = False,
    require_complete: bool = False,
    wait_s: float = 0.0,
    make_current: bool = False,
    progress: EventListener | None = None,
) -> IndexResult:
    """Build an index in a thread of the running event loop; arguments and errors as `build_index`.

    Cancelling the awaiting task does not stop the build, which continues in its thread.
    """
    return await asyncio.to_thread(
        build_index,
        inputs,
        index,
        config=config,
        max_usd=max_usd,
        max_tokens=max_tokens,
        fresh=fresh,
        require_complete=require_complete,
        wait_s=wait_s,
        make_current=make_current,
        progress=progress,
    )


def plan_build(inputs: Inputs, *, config: ConfigLike = None, latency_s: float | None = None) -> CostEstimate:
    """Estimate the calls, tokens, cost and time of an index; calls no model.

    Args:
        inputs: as `build_index`.
        config: as `as_config`; its endpoints have the prices and limits.
        latency_s: seconds that a chat call takes; by default estimated from its output tokens.

    Raises:
        InputError: there is nothing to read.
        ConfigError: the configuration is invalid.
    """
    loaded = as_config(config)
    return estimate_build(_strings(inputs), loaded, load_prompts(loaded.prompts), latency_s)


def _strings(inputs: Inputs) -> list[str]:
    return [str(inputs)] if isinstance(inputs, str | Path) else [str(item) for item in inputs]


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _outside_event_loops(work: Callable[[], T]) -> T:
    """Return the result of work that runs event loops of its own; in a thread where one is running, as in notebooks."""
    if not _in_event_loop():
        return work()
    with ThreadPoolExecutor(1, thread_name_prefix="hirag-dist-build") as thread:
        return thread.submit(work).result()
