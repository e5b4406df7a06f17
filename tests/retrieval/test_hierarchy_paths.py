"""Ways up the hierarchy of a built index: those that a caller may see, and the bridge over them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from hirag_dist.core.cooperative import all_at_once
from hirag_dist.llm.endpoints.hashing import HashingEmbedder
from hirag_dist.retrieval.hierarchy_paths import ancestry_of, chain_over_steps
from hirag_dist.types import AccessScope, Query
from tests.leaky_builds import NOBODY, QUESTIONS, Indexes, corpus
from tests.toy_builds import rows


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Indexes:
    return Indexes(tmp_path_factory)


@pytest.mark.parametrize("reach", [None, NOBODY])
async def test_parents_are_the_visible_summary_entities(made: Indexes, reach: frozenset[str] | None) -> None:
    engine, snapshot = made(corpus(1)), made.snapshot(corpus(1))
    view = await engine._view(AccessScope(reach=reach))
    assert view is not None
    entities, relations = rows(snapshot, "entities"), rows(snapshot, "relations")
    place = {row["entity_id"]: at for at, row in enumerate(entities)}
    states = [0] * len(entities) if view.access is None else view.access.entity_states[view.access.entity_patterns]
    visible = [at for at in range(len(entities)) if view.access is None or states[at]]
    expected: dict[int, set[int]] = {}
    for row in relations:
        member, above = place[row["source_id"]], place[row["target_id"]]
        if row["kind"] == "summary" and {member, above} <= set(visible):
            expected.setdefault(member, set()).add(above)
    query = (await HashingEmbedder(32, 0).embed([QUESTIONS[0]]))[0]
    ancestry, closeness = all_at_once(ancestry_of(view, visible, query))
    assert {row: set(above) for row, above in ancestry.parents.items()} == expected
    assert (len(expected) > 20) == (reach is None), "a summary of anything hidden is hidden"
    assert list(closeness) == visible
    assert list(closeness.values()) == view.similarities(np.array(visible), query).tolist()
    for way, (source, target) in zip(
        all_at_once(chain_over_steps(view, visible, query)), pairwise(visible), strict=True
    ):
        assert bool(way) == bool(ancestry.above(source) & ancestry.above(target))
        assert not way or (way[0], way[-1]) == (source, target)


@pytest.mark.parametrize("reach", [None, NOBODY])
async def test_a_bridge_over_the_hierarchy(made: Indexes, reach: frozenset[str] | None) -> None:
    """Neighbours on its paths are members and their summary entities."""
    engine, snapshot = made(corpus(1)), made.snapshot(corpus(1))
    config = engine._config.model_copy(update={"bridge_endpoints": "communities"})  # whose members share summaries
    engine = engine.with_settings(config)
    over = engine.with_settings(config.model_copy(update={"bridge_paths": "hierarchy"}))
    kinds = {
        frozenset((row["source_id"], row["target_id"]))
        for row in rows(snapshot, "relations")
        if row["kind"] == "summary"
    }
    query = Query(QUESTIONS[0], "bridge", top_n=40, reach=reach)
    plain, found = await engine.retrieve(query), await over.retrieve(query)
    assert found.key_entities == plain.key_entities
    assert [(path.source_id, path.target_id) for path in found.paths] == [
        (path.source_id, path.target_id) for path in plain.paths
    ]
    steps = {frozenset(pair) for path in found.paths for pair in pairwise(path.entity_ids)}
    assert steps <= kinds
    assert steps
    assert found.paths != plain.paths
