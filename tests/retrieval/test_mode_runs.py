"""Every mode has a class that retrieves in it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hirag_dist.config.model import RetrievalConfig as RetrievalConfig
from hirag_dist.core.retrieval.mode_coefficients import CLASS_MODES
from hirag_dist.retrieval.graphrag_local import GraphragLocalRun
from hirag_dist.retrieval.lean import LeanRun
from hirag_dist.retrieval.mode_runs import run_class
from hirag_dist.retrieval.search import _LEVELS, MODES, NO_DIRECTION, RetrievalRun
from hirag_dist.retrieval.selecting import SelectingRun
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import Query
from tests.retrieval.test_engine import Bench
from tests.retrieval.test_engine import snapshot as snapshot


def test_the_class_of_each_mode() -> None:
    plain, coverage = (RetrievalConfig.model_validate({"selection": own}) for own in ("rank", "coverage"))
    own = {mode: run_class(mode, plain) for mode in MODES if run_class(mode, plain) is not RetrievalRun}
    assert own == {"graphrag-local": GraphragLocalRun, "lean": LeanRun}
    changed = {
        mode: run_class(mode, coverage) for mode in MODES if run_class(mode, coverage) is not run_class(mode, plain)
    }
    assert changed == {"hirag": SelectingRun, "global": SelectingRun}


ASKED = [
    ("Who is b?", "fact"),
    ("Are a and b the same?", "comparison"),
    ("How are a and c connected?", "path"),
    ("What are the main themes?", "corpus-wide"),
]


@pytest.mark.parametrize(("question", "kind"), ASKED)
async def test_auto_gives_what_the_chosen_mode_gives(snapshot: Snapshot, question: str, kind: str) -> None:
    vector = np.array([0.6, 0.8, 0, 0, 0], np.float32)
    engine = Bench(snapshot).engine
    found = await engine.retrieve(Query(question, "auto", vector=vector, top_n=3))
    assert found.choice is not None
    assert (found.choice.question_class, found.mode) == (kind, CLASS_MODES[kind])
    assert found.choice.mode == found.mode
    assert found.timings_ms["choice"] <= found.timings_ms["total"]
    wanted = await engine.retrieve(Query(question, found.mode, vector=vector, top_n=3))
    assert wanted.choice is None
    assert replace(found, choice=None, timings_ms={}) == replace(wanted, timings_ms={})


async def test_auto_as_the_configured_mode_and_level_by_level(snapshot: Snapshot) -> None:
    engine = Bench(snapshot, RetrievalConfig(mode="auto")).engine
    vector = np.array([0.6, 0.8, 0, 0, 0], np.float32)
    parts = [part async for part in engine.retrieve_stream(Query("How are a and c connected?", vector=vector))]
    assert [level for level, _ in parts] == [*_LEVELS[CLASS_MODES["path"]], "done"]
    (choice, *others) = (found.choice for _, found in parts)
    assert others == [choice] * len(others), "with every level"
    assert choice is not None
    assert "A, C" in choice.reason
    found = await engine.retrieve(Query("Who is b?", "naive", vector=vector))
    assert (found.mode, found.choice) == ("naive", None), "a mode that is asked for is taken"


async def test_auto_says_why_when_nothing_is_found(snapshot: Snapshot) -> None:
    engine = Bench(snapshot).engine
    found = await engine.retrieve(Query("Who is b?", "auto", vector=np.zeros(5, np.float32)))
    assert found.note == NO_DIRECTION
    assert found.choice is not None
    assert found.mode == found.choice.mode
