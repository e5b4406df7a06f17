"""The class that retrieves in each mode."""

from __future__ import annotations

from hirag_dist.retrieval.graphrag_local import GraphragLocalRun
from hirag_dist.retrieval.lean import LeanRun
from hirag_dist.retrieval.search import GRAPHRAG_LOCAL, LEAN, RetrievalRun

_RUNS: dict[str, type[RetrievalRun]] = {GRAPHRAG_LOCAL: GraphragLocalRun, LEAN: LeanRun}


def run_class(mode: str) -> type[RetrievalRun]:
    """Return the class for a mode of `search.MODES`.

    >>> run_class("lean").__name__, run_class("hirag").__name__
    ('LeanRun', 'RetrievalRun')
    """
    return _RUNS.get(mode, RetrievalRun)
