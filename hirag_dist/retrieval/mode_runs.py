"""The run of a question in its mode; in mode `auto`, in the mode that is chosen by the question."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from hirag_dist.config.model import RetrievalConfig as RetrievalConfig
from hirag_dist.core.retrieval.entity_linking import rows_of
from hirag_dist.core.retrieval.mode_choice import choose_mode
from hirag_dist.retrieval.graphrag_local import GraphragLocalRun
from hirag_dist.retrieval.lean import LeanRun
from hirag_dist.retrieval.search import GRAPHRAG_LOCAL, LEAN, RetrievalRun
from hirag_dist.retrieval.selecting import SelectingRun
from hirag_dist.storage.serving.mapped_index import MappedIndex
from hirag_dist.types import AUTO, Query

_RUNS: dict[str, type[RetrievalRun]] = {GRAPHRAG_LOCAL: GraphragLocalRun, LEAN: LeanRun}
_SELECTING = ("hirag", "global")


def run_class(mode: str, limits: RetrievalConfig) -> type[RetrievalRun]:
    """Return the class for a mode of `search.MODES` but `auto`.

    >>> run_class("lean", RetrievalConfig()).__name__, run_class("hirag", RetrievalConfig()).__name__
    ('LeanRun', 'RetrievalRun')
    """
    if mode in _SELECTING and limits.selection == "coverage":
        return SelectingRun
    return _RUNS.get(mode, RetrievalRun)


def make_run(index: MappedIndex, query: Query, limits: RetrievalConfig, *rest: Any) -> RetrievalRun:
    """Return the run of a question.

    Args:
        index: as the caller may see it. A choice of mode depends on what is visible alone.
        query: with or without a mode.
        limits: settings, with those of the query.
        rest: further arguments of `RetrievalRun`.
    """
    mode = query.mode or limits.mode
    if mode != AUTO:
        return run_class(mode, limits)(index, query, limits, *rest)
    started = time.perf_counter()
    phrases = index.name_phrases(query.question)
    choice = choose_mode(query.question, list(index.named(rows_of(phrases))[1].values()))
    duration_ms = (time.perf_counter() - started) * 1e3
    run = run_class(choice.mode, limits)(index, replace(query, mode=choice.mode), limits, *rest)
    run.was_chosen(choice, phrases, duration_ms)
    return run
