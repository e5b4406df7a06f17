"""Questions to a snapshot made by hand.

Layer 0 is a path a – b – c – d and a lone e; S in layer 1 stands for a and b. Their vectors are the axes of a small
space, but for b, which lies between a and c. Communities: left (a, b, S), right (c, d), lone (e, without a report).
Chunk k0 speaks of a and b, k1 of c and d, k2 of e.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hirag_dist import schemas
from hirag_dist.config.model import RetrievalConfig as RetrievalConfig
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.errors import InvalidQuery, ModelUnavailable
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.retrieval.engine_resources import EngineResources
from hirag_dist.retrieval.search import MODES, NO_DIRECTION
from hirag_dist.retrieval.vector_index.memory import MemoryVectors
from hirag_dist.storage.layout import TABLES
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import BY_NAME, BY_VECTOR, ChatRequest, FloatMatrix, Query
from tests.leaky_builds import HIDDEN, NOBODY, Indexes, corpus
from tests.scripted_model import ScriptedModel
from tests.storage import snapshots
from tests.table_rows import filled_table

AXES = {
    "a": (1.0, 0, 0, 0, 0),
    "b": (0.8, 0.6, 0, 0, 0),
    "c": (0, 1.0, 0, 0, 0),
    "d": (0, 0, 1.0, 0, 0),
    "e": (0, 0, 0, 1.0, 0),
    "S": (0, 0, 0, 0, 1.0),
}
COMMUNITIES = {"left": ["a", "b", "S"], "right": ["c", "d"], "lone": ["e"]}
PAPER = RetrievalConfig(fidelity="paper", community_level="leaf")
CHUNKS = {"k0": "ab", "k1": "cd", "k2": "e"}


class Axes:
    """An embedder that knows the names of the entities."""

    name = "axes"
    dim = 5

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.hangs = False

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        if self.hangs:
            await asyncio.Event().wait()
        self.asked.extend(texts)
        return np.array([AXES[text.removesuffix("?")] for text in texts], np.float32)


class Answers(ScriptedModel):
    """The answering role, played by a script."""

    def model_name(self, request: ChatRequest) -> str:
        return "scripted"


def chunks_of(*names: str) -> list[str]:
    return [chunk for chunk, inside in CHUNKS.items() if {*names} <= {*inside}]


def relation(source: str, target: str, weight: float, kind: str = "extracted", name: str = "") -> dict[str, Any]:
    own = {"relation_id": name or f"{source}-{target}", "source_id": source, "target_id": target, "kind": kind}
    return own | {"description": f"{source} and {target}", "weight": weight, "chunk_ids": chunks_of(source, target)}


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    document = {"document_id": "doc", "uri": "doc.txt", "title": "Doc", "text": "x" * 30, "n_chars": 30}
    told = {"rating": 5.0, "findings": [{"summary": "They meet.", "explanation": "Often."}]}
    rows: dict[str, list[dict[str, Any]]] = {
        "documents": [document],
        "chunks": [
            {"chunk_id": own, "document_id": "doc", "start": 10 * at, "end": 10 * at + 10, "text": f"Text of {own}."}
            for at, own in enumerate(CHUNKS)
        ],
        "entities": [
            {"entity_id": name, "layer": int(name == "S"), "name": name.upper(), "chunk_ids": chunks_of(name)}
            for name in AXES
        ],
        "relations": [
            relation("a", "S", 1.0, "summary"),
            relation("a", "b", 4.0),
            relation("a", "b", 1.0, name="a-b again"),
            relation("b", "S", 1.0, "summary"),
            relation("b", "c", 3.0),
            relation("c", "d", 2.0),
        ],
        "communities": [
            {"community_id": name, "is_leaf": True, "entity_ids": sorted(COMMUNITIES[name])}
            for name in sorted(COMMUNITIES)
        ],
        "reports": [
            {"community_id": name, "title": f"The {name}", "summary": f"What the {name} is."} | told
            for name in ("left", "right")
        ],
    }
    tables = {name: filled_table(getattr(schemas, name.upper()), rows.get(name, [])) for name in TABLES}
    vectors = {
        "vectors/entities": np.array(list(AXES.values()), np.float32),
        "vectors/chunks": np.array([AXES["a"], AXES["c"], AXES["e"]], np.float32),
    }
    return snapshots.written(Store(str(tmp_path_factory.mktemp("index"))), tables, vectors)


class Bench:
    def __init__(
        self,
        snapshot: Snapshot,
        config: RetrievalConfig | None = None,
        clock: Callable[[], float] = time.monotonic,
        reranker: Any = None,
    ) -> None:
        self.embedder = Axes()
        self.answers = Answers(lambda request: "It is so [E1][S1], they say [E77].")
        resources = EngineResources(
            snapshot,
            MemoryVectors(snapshot),
            self.embedder,
            self.answers,
            Prompts(),
            lambda text: len(text.split()),
            clock=clock,
            reranker=reranker,
        )
        self.engine = QueryEngine(resources, config or RetrievalConfig())

    async def ask(self, question: str = "a?", mode: str = "hirag", **more: Any) -> Any:
        return await self.engine.retrieve(Query(question, mode, **more))


@pytest.fixture
def bench(snapshot: Snapshot) -> Bench:
    return Bench(snapshot)


def ids(items: Sequence[Any], field: str = "entity_id") -> list[Any]:
    return [getattr(item, field) for item in items]


async def test_local_entities_by_similarity_ties_by_row(bench: Bench) -> None:
    found = await bench.ask(top_n=4)
    assert ids(found.local) == ["a", "b", "c", "d"]
    assert ids(found.local, "score") == pytest.approx([1.0, 0.8, 0.0, 0.0])
    assert (await bench.ask("S?", top_n=1)).local[0].layer == 1


async def test_communities_by_hits_then_similarity(bench: Bench) -> None:
    found = await bench.ask("c?", top_n=3)  # c, b, and a by its row
    assert ids(found.local) == ["c", "b", "a"]
    assert [(item.community_id, item.hits) for item in found.communities] == [("left", 2), ("right", 1)]
    assert [item.score for item in found.communities] == pytest.approx([0.6, 1.0])
    assert found.communities[0].title == "The left"
    assert ids((await bench.ask("e?", top_n=2)).communities, "community_id") == ["left"]  # lone has no report


async def test_key_entities_walk_the_communities_in_order(bench: Bench) -> None:
    """Eq. 14–16, worked by hand."""
    found = await bench.ask("c?", top_n=3, top_m=1)
    assert ids(found.key_entities) == ["b", "c"]  # left's best, then right's
    assert [path.entity_ids for path in found.paths] == [("b", "c")]
    assert ids(found.triples, "relation_id") == ["b-c"]
    found = await bench.ask("a?", top_n=3, top_m=2)
    assert ids(found.key_entities) == ["a", "b", "c", "d"]
    assert [(path.source_id, path.target_id) for path in found.paths] == [("a", "b"), ("b", "c"), ("c", "d")]
    assert set(ids(found.triples, "relation_id")) == {"a-b", "a-b again", "b-c", "c-d"}
    scores = [triple.score for triple in found.triples]
    assert scores == sorted(scores, reverse=True)
    assert ids(found.triples, "relation_id")[:2] == ["a-b", "a-b again"]  # the heavier first


async def test_triples_near_the_question_come_first_or_follow_the_paths(bench: Bench, snapshot: Snapshot) -> None:
    asked = {"question": "d?", "top_n": 5, "top_m": 2}
    found = await bench.ask(**asked)
    assert ids(found.key_entities) == ["d", "c", "a", "b", "e"]
    assert ids(found.triples, "relation_id") == ["c-d", "a-b", "b-c", "a-b again"]
    assert [triple.score for triple in found.triples] == pytest.approx([0.5, 0.0, 0.0, 0.0])  # d is c-d's nearer end
    plain = Bench(snapshot, PAPER)
    walked = await plain.ask(**asked)  # d – c, c – b – a, a – b
    assert ids(walked.triples, "relation_id") == ["c-d", "b-c", "a-b", "a-b again"]
    assert {one.relation_id: one.score for one in walked.triples} == {
        one.relation_id: one.score for one in found.triples
    }


async def test_the_bridge_joins_the_entities_that_a_question_names_first(bench: Bench, snapshot: Snapshot) -> None:
    asked = {"question": "How is D connected to A?", "vector": np.array(AXES["e"], np.float32), "top_n": 2, "top_m": 1}
    for mode in ("hirag", "bridge"):
        found = await bench.ask(mode=mode, **asked)
        assert ids(found.key_entities) == ["d", "a", "e"], "those of the question, then lone's; left's best is a"
        assert [path.entity_names for path in found.paths] == [("D", "C", "B", "A"), ()]
        assert ids(found.triples, "relation_id") == ["c-d", "b-c", "a-b", "a-b again"], "along the path"
        assert [item.score for item in found.key_entities] == pytest.approx([0, 0, 1])
    plain = Bench(snapshot, PAPER)
    assert ids((await plain.ask(**asked)).key_entities) == ["e", "a"]
    one = await bench.ask(**asked | {"question": "What of D?"})
    assert ids(one.key_entities) == ["e", "a"], "one name has no path"


async def test_a_pair_that_nothing_joins_is_told(bench: Bench) -> None:
    found = await bench.ask("e?", top_n=2, top_m=1)
    assert ids(found.key_entities) == ["e", "a"]
    (path,) = found.paths
    assert not path.connected
    assert (path.source_id, path.target_id) == ("e", "a")
    assert found.triples == ()


PARTS = ("local", "communities", "key_entities", "sources")


@pytest.mark.parametrize(
    ("mode", "present"),
    [
        ("hirag", {"local", "communities", "key_entities", "sources"}),
        ("local", {"local", "sources"}),
        ("global", {"communities", "sources"}),
        ("bridge", {"key_entities", "sources"}),
        ("nobridge", {"local", "communities", "sources"}),
        ("naive", {"sources"}),
        ("flat", {"local", "sources"}),
        ("graphrag-local", {"local", "communities", "sources"}),
    ],
)
async def test_each_mode_gives_its_levels(bench: Bench, mode: str, present: set[str]) -> None:
    found = await bench.ask("a?", mode)
    assert {part for part in PARTS if getattr(found, part)} == present
    assert bool(found.paths) == ("key_entities" in present)
    assert bool(found.triples) == ("key_entities" in present or mode == "graphrag-local")
    assert (found.mode, found.question, found.partial) == (mode, "a?", ())
    assert found.context
    relations = {"a-b", "a-b again", "b-c", "c-d", "a-S", "b-S"}
    assert set(found.context_refs.values()) <= {*AXES, *COMMUNITIES, *CHUNKS, *relations}


async def test_local_search_of_graphrag_is_of_layer_0_and_what_hangs_on_it(bench: Bench) -> None:
    found = await bench.ask("a?", "graphrag-local", top_n=2)
    assert ids(found.local) == ["a", "b"]
    assert ids(found.triples, "relation_id") == ["a-b", "a-b again", "b-c"], "none to the summary entity S"
    assert ids(found.communities, "community_id") == ["left"]
    assert ids(found.sources, "chunk_id") == ["k0"]
    assert (found.key_entities, found.paths) == ((), ())
    assert "## Relations" in found.context
    assert set(found.timings_ms) == {"embed", "search", "communities", "bridge", "sources", "render", "total"}
    nearer = await bench.ask("c?", "graphrag-local", top_n=2)
    assert ids(nearer.local) == ["c", "b"]
    assert ids(nearer.sources, "chunk_id") == ["k1", "k0"], "in the order of the entities"


async def test_naive_ranks_chunks_by_their_own_vectors(bench: Bench) -> None:
    found = await bench.ask("c?", "naive")
    assert [item.similarity for item in found.sources] == pytest.approx([item.score for item in found.sources])
    walked = {item.chunk_id: item for item in (await bench.ask("c?")).sources}
    for item in found.sources:
        if item.chunk_id in walked:
            assert walked[item.chunk_id].similarity == pytest.approx(item.similarity) != walked[item.chunk_id].score
    assert ids(found.sources, "chunk_id") == ["k1", "k0", "k2"]
    assert found.sources[0].score == pytest.approx(1.0)
    assert (found.sources[0].start, found.sources[0].end, found.sources[0].title) == (10, 20, "Doc")


async def test_sources_come_from_entities_their_members_and_what_the_question_names(snapshot: Snapshot) -> None:
    """The question is near a alone; e, of chunk k2, is joined to nothing and stands in its words."""
    bench = Bench(snapshot, RetrievalConfig(top_n=1, fidelity="paper"))
    near = np.array(AXES["a"], np.float32)
    for question, vector, expected in (
        ("What is near?", near, ["k0", "k1"]),
        ("What is E?", near, ["k2", "k0", "k1"]),
        ("S?", None, ["k0", "k1"]),
    ):
        found = await bench.ask(question, "local", vector=vector)
        assert ids(found.sources, "chunk_id") == expected


async def test_chunks_near_a_question_and_with_its_words_are_sources_but_not_in_the_paper(snapshot: Snapshot) -> None:
    near = np.array([0, 0.1, 0, 0.9, 0], np.float32)  # to chunk k2, and then to k1
    alone, fused = (Bench(snapshot, RetrievalConfig(top_n=1, fidelity=own)) for own in ("paper", "best"))
    for mode in ("hirag", "flat"):
        assert "k1" not in ids((await alone.ask("?", mode, vector=near)).sources, "chunk_id")
        assert ids((await fused.ask("?", mode, vector=near)).sources, "chunk_id")[:2] == ["k2", "k1"]
    for bench, is_found in ((alone, False), (fused, True)):
        sources = (await bench.ask("Where is k2?", vector=np.array(AXES["a"], np.float32))).sources
        assert ("k2" in ids(sources, "chunk_id")) is is_found, "by its words alone"


async def test_a_deadline_between_levels_keeps_what_was_found(snapshot: Snapshot) -> None:
    now = [0.0]
    bench = Bench(snapshot, clock=lambda: now[0])
    seen, last = [], None
    async for level, so_far in bench.engine.retrieve_stream(Query("a?"), deadline_s=1.0):
        now[0] += 5.0 * (level == "global")
        seen.append((level, bool(so_far.context)))
        last = so_far
    assert seen == [("local", False), ("global", False), ("done", True)]
    assert last.partial == ("bridge",)
    assert all((last.local, last.communities, last.sources, last.context))
    assert (last.key_entities, last.paths, last.triples) == ((), (), ())


async def test_a_deadline_that_is_over_leaves_every_level_out(bench: Bench) -> None:
    found = await bench.engine.retrieve(Query("a?"), deadline_s=0.0)
    assert found.partial == ("local", "global", "bridge")
    assert (found.local, found.communities, found.paths, found.sources) == ((), (), (), ())


@pytest.mark.parametrize(("mode", "cut"), [("hirag", ("local", "global", "bridge")), ("naive", ("sources",))])
async def test_an_embedder_that_takes_too_long_is_not_waited_for(
    snapshot: Snapshot, mode: str, cut: tuple[str, ...]
) -> None:
    bench = Bench(snapshot)
    bench.embedder.hangs = True
    found = await bench.engine.retrieve(Query("a?", mode), deadline_s=0.01)
    assert found.partial == cut
    assert (found.local, found.sources, found.context) == ((), (), "")
    assert "total" in found.timings_ms
    assert (await Bench(snapshot).engine.retrieve(Query("a?", mode), deadline_s=60.0)).partial == ()


async def test_a_callers_own_vector_is_used_and_scaled(bench: Bench) -> None:
    found = await bench.ask("what is near c", vector=np.array([0, 7, 0, 0, 0], np.float32), top_n=2)
    assert ids(found.local) == ["c", "b"]
    assert found.local[0].score == pytest.approx(1.0)
    assert bench.embedder.asked == []


@pytest.mark.parametrize("mode", MODES)
async def test_a_question_without_direction_finds_nothing_and_says_so(bench: Bench, mode: str) -> None:
    """All records are equally far from a zero vector; the first ones by row would be as good as any."""
    found = await bench.ask("a and 😀", mode, vector=np.zeros(5, np.float32))
    assert found.note == NO_DIRECTION
    assert not any((found.local, found.communities, found.key_entities, found.triples, found.sources))
    assert (found.context, found.context_refs, found.partial) == ("", {}, ())
    assert NO_DIRECTION in repr(found)
    assert (await bench.ask("a?", mode)).note == ""


@pytest.mark.parametrize("mode", ["hirag", "global", "graphrag-local"])
async def test_a_level_deeper_than_the_communities_takes_the_deepest_and_says_so(bench: Bench, mode: str) -> None:
    found = await bench.ask("a?", mode, community_level="9")
    assert ids(found.communities, "community_id") == ids((await bench.ask("a?", mode)).communities, "community_id")
    assert found.note == "community_level 9 is deeper than every community found, so the deepest ones took its place"
    assert (await bench.ask("a?", mode, community_level="0")).note == ""
    assert (await bench.ask("a?", "local", community_level="9")).note == ""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"question": "  "}, "question: it is empty"),
        ({"mode": "globl"}, "mode: there is no 'globl'"),
        ({"top_n": 0}, "^top_n must be between 1 and 1000, got 0$"),
        ({"top_m": 101}, "^top_m must be between 1 and 100, got 101$"),
        ({"context_tokens": 3}, "^context_tokens must be at least 200, got 3$"),
        ({"community_level": "deep"}, "^community_level must be leaf, all, or a level's number, got deep$"),
        ({"vector": np.zeros(4, np.float32)}, "vector: 4 numbers; this index has 5 dimensions"),
    ],
)
async def test_wrong_questions(bench: Bench, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidQuery, match=said):
        await bench.engine.retrieve(Query(**({"question": "a?"} | wrong)))


def test_another_embedder_than_the_indexs(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Axes, "name", "other")
    with pytest.raises(InvalidQuery, match=r"built with embedder axes of 5 dimensions, and other"):
        Bench(snapshot)


async def test_an_answer_with_its_citations(bench: Bench) -> None:
    pieces = [piece async for piece in bench.engine.answer_stream(Query("a?"))]
    answer = pieces[-1]
    assert answer.text == "It is so [E1][S1], they say."
    assert [(one.ref, one.kind, one.id) for one in answer.citations] == [("E1", "entity", "a"), ("S1", "chunk", "k0")]
    assert answer.dropped_citations == 1
    assert "".join(piece for piece in pieces if isinstance(piece, str)).startswith("It is so [E1]")
    (request,) = bench.answers.requests
    assert "Text of k0." in request.messages[1].content
    assert answer.model == "scripted"


class Judge:
    """A reranker that prefers what comes last, or fails."""

    max_texts = 50

    def __init__(self, failure: Exception | None = None, hangs: bool = False) -> None:
        self.asked: list[tuple[str, list[str]]] = []
        self.failure = failure
        self.hangs = hangs

    async def scores(self, question: str, texts: Sequence[str]) -> Any:
        self.asked.append((question, list(texts)))
        if self.hangs:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        return np.arange(len(texts), dtype=np.float64)


@pytest.mark.parametrize("mode", ["hirag", "naive", "graphrag-local"])
async def test_a_reranker_orders_the_sources(snapshot: Snapshot, mode: str) -> None:
    before = await Bench(snapshot, RetrievalConfig(top_sources=3)).ask("a?", mode, top_n=2)
    judge = Judge()
    found = await Bench(snapshot, RetrievalConfig(top_sources=1), reranker=judge).ask("a?", mode, top_n=2)
    ((question, texts),) = judge.asked
    assert (question, texts) == ("a?", [item.text for item in before.sources])
    assert ids(found.sources, "chunk_id") == ids(before.sources, "chunk_id")[::-1][: len(found.sources)]
    assert found.sources[0].score == len(texts) - 1
    assert len(found.sources) == (2 if mode == "naive" else 1)
    assert "rerank" in found.timings_ms


@pytest.mark.parametrize(
    ("judge", "deadline_s", "why"),
    [
        (Judge(ModelUnavailable("judge is out of reach")), None, "judge is out of reach"),
        (Judge(hangs=True), 0.5, "the deadline passed"),
    ],
)
async def test_sources_keep_their_order_where_the_reranker_fails_or_takes_too_long(
    snapshot: Snapshot, judge: Judge, deadline_s: float | None, why: str
) -> None:
    expected = await Bench(snapshot).ask("a?")
    found = await Bench(snapshot, reranker=judge).engine.retrieve(Query("a?"), deadline_s=deadline_s)
    assert ids(found.sources, "chunk_id") == ids(expected.sources, "chunk_id")
    assert found.note == f"the sources are not reranked: {why}"


async def asked(bench: Bench, question: str, mode: str = "hirag", **more: Any) -> Any:
    return await bench.ask(question, mode, **{"vector": np.array(AXES["e"], np.float32), "top_n": 8} | more)


@pytest.mark.parametrize("mode", ["hirag", "local", "nobridge"])
async def test_named_entities_come_first_in_the_order_of_the_question(snapshot: Snapshot, mode: str) -> None:
    found = await asked(Bench(snapshot), "How do D, S and B differ?", mode)
    assert ids(found.local) == ["d", "b", "e", "a", "c", "S"]
    assert [item.matched for item in found.local] == [BY_NAME] * 2 + [BY_VECTOR] * 4
    assert [item.score for item in found.local] == pytest.approx([0, 0, 1, 0, 0, 0])
    assert [found.context_refs[ref] for ref in ("E1", "E2", "E3")] == ["d", "b", "e"]
    plain = await asked(Bench(snapshot, PAPER), "How do D, S and B differ?", mode)
    assert ids(plain.local) == ["e", "a", "b", "c", "d", "S"]
    assert {item.matched for item in plain.local} == {BY_VECTOR}


@pytest.mark.parametrize(
    ("question", "top_n", "expected"),
    [
        ("Who met D, D and d?", 8, "deabcS"),
        ("who met d or B?", 4, "beac"),
        ("who met d or b?", 4, "deab"),
        ("who met D?", 3, "eab"),
    ],
)
async def test_how_many_are_named(snapshot: Snapshot, question: str, top_n: int, expected: str) -> None:
    found = await asked(Bench(snapshot), question, top_n=top_n)
    assert ids(found.local) == [*expected]
    assert len(found.local) <= top_n


@pytest.mark.parametrize("mode", ["hirag", "local", "nobridge", "flat"])
async def test_a_hidden_entity_is_not_found_by_its_name_and_takes_no_place(made: Indexes, mode: str) -> None:
    engine = made(corpus(1))
    question = f"{HIDDEN}aa and wordaa, {HIDDEN}ab and {HIDDEN}ac"
    asked = Query(question, mode, top_n=8)
    everything = await engine.retrieve(asked)
    assert [item.name for item in everything.local[:2]] == [f"{HIDDEN}aa", "wordaa"]
    assert [item.matched for item in everything.local[:3]] == [BY_NAME, BY_NAME, BY_VECTOR]
    found = await engine.retrieve(replace(asked, reach=NOBODY))
    assert [item.name for item in found.local if item.matched == BY_NAME] == ["wordaa"]
    assert not any(item.name.startswith(HIDDEN) for item in found.local)
    secret = await engine.retrieve(Query(f"wordaa {HIDDEN}aa {HIDDEN}ab", mode, top_n=8, labels=("secret",)))
    assert all(item.name.startswith(HIDDEN) or "wordaa" in item.name for item in secret.local[:2])
