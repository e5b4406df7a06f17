"""Builds by an executor that a test makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hirag_dist.composition.build import resolve
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.execution.runner import StageRunner
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.pipeline import Build, BuildResult
from hirag_dist.protocols import Executor
from hirag_dist.storage.store import Store

SAMPLES = Path(__file__).parents[3] / "hirag_dist" / "samples" / "corpus"


def indexed(
    config: Config,
    store: Store,
    executor: Executor,
    documents: Path,
    listen: Callable[[object], None] = lambda event: None,
    *,
    kernels: str | None = None,
    base_id: str | None = None,
) -> BuildResult:
    """Index documents, and close the executor: from nothing, or to update the current snapshot if `base_id` is ""."""
    try:
        runner = StageRunner(store, executor, (listen,), config.max_reject_ratio)
        context = BuildContext(runner, config, Prompts(), resolve(config, None, kernels))
        return Build(context, base_id=base_id).index([str(documents)])
    finally:
        executor.close()
