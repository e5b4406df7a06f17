"""Every mode has a class that retrieves in it."""

from __future__ import annotations

from hirag_dist.config.model import RetrievalConfig as RetrievalConfig
from hirag_dist.retrieval.graphrag_local import GraphragLocalRun
from hirag_dist.retrieval.lean import LeanRun
from hirag_dist.retrieval.mode_runs import run_class
from hirag_dist.retrieval.search import MODES, RetrievalRun
from hirag_dist.retrieval.selecting import SelectingRun


def test_the_class_of_each_mode() -> None:
    plain, coverage = (RetrievalConfig.model_validate({"selection": own}) for own in ("rank", "coverage"))
    own = {mode: run_class(mode, plain) for mode in MODES if run_class(mode, plain) is not RetrievalRun}
    assert own == {"graphrag-local": GraphragLocalRun, "lean": LeanRun}
    changed = {
        mode: run_class(mode, coverage) for mode in MODES if run_class(mode, coverage) is not run_class(mode, plain)
    }
    assert changed == {"hirag": SelectingRun, "global": SelectingRun}
