"""Every mode has a class that retrieves in it."""

from __future__ import annotations

from hirag_dist.retrieval.graphrag_local import GraphragLocalRun
from hirag_dist.retrieval.lean import LeanRun
from hirag_dist.retrieval.mode_runs import run_class
from hirag_dist.retrieval.search import MODES, RetrievalRun


def test_the_class_of_each_mode() -> None:
    own = {mode: run_class(mode) for mode in MODES if run_class(mode) is not RetrievalRun}
    assert own == {"graphrag-local": GraphragLocalRun, "lean": LeanRun}
