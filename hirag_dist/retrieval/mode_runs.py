"""The class that retrieves in each mode."""

from __future__ import annotations

from hirag_dist.config.model import RetrievalConfig as RetrievalConfig
from hirag_dist.retrieval.graphrag_local import GraphragLocalRun
from hirag_dist.retrieval.lean import LeanRun
from hirag_dist.retrieval.search import GRAPHRAG_LOCAL, LEAN, RetrievalRun
from hirag_dist.retrieval.selecting import SelectingRun

_RUNS: dict[str, type[RetrievalRun]] = {GRAPHRAG_LOCAL: GraphragLocalRun, LEAN: LeanRun}
_SELECTING = ("hirag", "global")


def run_class(mode: str, limits: RetrievalConfig) -> type[RetrievalRun]:
    """Return the class for a mode of `search.MODES`.

    >>> run_class("lean", RetrievalConfig()).__name__, run_class("hirag", RetrievalConfig()).__name__
    ('LeanRun', 'RetrievalRun')
    """
    if mode in _SELECTING and limits.selection == "coverage":
        return SelectingRun
    return _RUNS.get(mode, RetrievalRun)
