"""The mode lean, over the snapshot made by hand of `test_engine`: S stands for a and b."""

from __future__ import annotations

import pytest

from hirag_dist.config.model import RetrievalConfig as RetrievalConfig
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import Query
from tests.retrieval.test_engine import Bench, ids
from tests.retrieval.test_engine import snapshot as snapshot


async def test_entities_the_summary_that_joins_them_and_the_relations_of_all(snapshot: Snapshot) -> None:
    found = await Bench(snapshot).ask("a?", "lean", top_n=2)
    assert ids(found.local) == ["a", "b", "S"]
    assert [item.score for item in found.local] == pytest.approx([1.0, 0.8, 0.0])
    assert [path.entity_ids for path in found.paths] == [("a", "S"), ("b", "S")]
    assert set(ids(found.triples, "relation_id")) == {"a-b", "a-b again", "a-S", "b-S"}
    assert (found.communities, found.key_entities) == ((), ())
    assert "## Relations" in found.context
    assert {found.context_refs[ref] for ref in ("E1", "E2", "E3")} == {"a", "b", "S"}
    assert ids(found.sources, "chunk_id")[0] == "k0"


async def test_no_summary_joins_what_has_none_in_common(snapshot: Snapshot) -> None:
    found = await Bench(snapshot).ask("c?", "lean", top_n=1)
    assert (ids(found.local), found.paths, found.triples) == (["c"], (), ())
    found = await Bench(snapshot).ask("d?", "lean", top_n=3)
    assert ids(found.local) == ["d", "a", "b", "S"], "d is under no summary entity"


async def test_its_own_limits(snapshot: Snapshot) -> None:
    """Entities, chunks and tokens: those of the question go before those of the mode."""
    lean = {"top_n": 3, "top_sources": 1}
    bench = Bench(snapshot, RetrievalConfig(context_tokens=240, lean=lean))
    found = await bench.ask("a?", "lean")
    assert (ids(found.local), len(found.sources)) == (["a", "b", "c", "S"], 1)
    assert 0 < found.context_tokens <= 120
    assert len((await bench.ask("a?")).sources) > 1, "other modes have theirs"
    own = Bench(snapshot, RetrievalConfig(lean={"context_tokens": 100}))
    short, long = await own.ask("a?", "lean"), await own.ask("a?", "lean", context_tokens=4000)
    assert short.context_tokens <= 100 < (await Bench(snapshot).ask("a?")).context_tokens
    assert short.context_tokens < long.context_tokens
    assert len((await Bench(snapshot, RetrievalConfig(top_sources=2)).ask("a?", "lean")).sources) == 2


async def test_without_time_for_the_ways_there_are_entities_and_sources(snapshot: Snapshot) -> None:
    now = [0.0]
    bench = Bench(snapshot, clock=lambda: now[0])
    levels = []
    async for level, so_far in bench.engine.retrieve_stream(Query("a?", "lean", top_n=2), deadline_s=1.0):
        now[0] += 5.0
        levels.append((level, so_far))
    assert [level for level, _ in levels] == ["local", "done"]
    found = levels[-1][1]
    assert (found.partial, ids(found.local), found.paths) == (("bridge",), ["a", "b"], ())
    assert found.sources


async def test_it_comes_level_by_level(snapshot: Snapshot) -> None:
    stream = Bench(snapshot).engine.retrieve_stream(Query("a?", "lean", top_n=2))
    assert [(level, ids(so_far.local)) async for level, so_far in stream] == [
        ("local", ["a", "b"]),
        ("bridge", ["a", "b", "S"]),
        ("done", ["a", "b", "S"]),
    ]
