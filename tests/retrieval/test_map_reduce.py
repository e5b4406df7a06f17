"""Answers by map-reduce: every part is asked about and accounted for, over scripted models and a simulated endpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

import pytest

from hirag_dist.cli._output import out
from hirag_dist.cli.query import show_retrieval
from hirag_dist.composition.models import make_coordinator, make_pool
from hirag_dist.config.model import Config
from hirag_dist.config.model import RetrievalConfig as RetrievalConfig
from hirag_dist.config.sections import MapReduceConfig
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.retrieval.context import UNKNOWN_ANSWER, source_text
from hirag_dist.core.retrieval.map_reduce import PartBudget
from hirag_dist.core.text.tokens import counter
from hirag_dist.errors import BudgetReached, InvalidQuery, RequestRejected
from hirag_dist.llm.call import CallContext, PricedModel
from hirag_dist.llm.chat import EndpointPool
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.retrieval.answer_stream import answer_pieces
from hirag_dist.retrieval.map_reduce import MAP_REDUCE, MapReduceInput, map_parts
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.testing.simulator import Simulator, SimulatorOptions
from hirag_dist.types import Answer, ChatReply, ChatRequest, MapWork, Query, Retrieval, SourceItem
from tests import toy_builds
from tests.labelled_builds import build as labelled_build
from tests.leaky_builds import HIDDEN, NOBODY, engine_of, topics
from tests.leaky_builds import script as leaky_script
from tests.retrieval.test_engine import Bench
from tests.retrieval.test_engine import snapshot as snapshot

COUNT = counter("o200k_base")
TOPICS = ("lighthouse", "harbour", "orchard", "quarry", "mill", "ferry")


def material(question: str = "Who owns the harbour?", repeats: int = 1) -> MapReduceInput:
    """Six passages, each a part of its own; one speaks of the harbour. All are there as often as `repeats` says."""
    items, cut = {}, PartBudget("## Sources", 200, COUNT)
    for number, topic in enumerate(list(TOPICS) * repeats, 1):
        text = f"Mrs. Gray owns the {topic} and visits it on Sundays. " + f"The {topic} is old and quiet. " * 18
        items[f"S{number}"] = SourceItem(f"chunk-{topic}", "d", topic, "u", 0, len(text), text, 0.0)
        record = source_text(topic, 0, len(text), text)
        cut.add(f"S{number}", record, COUNT(record))
    parts = cut.finish()
    assert len(parts) == len(TOPICS) * repeats
    return MapReduceInput(question, "text-map-reduce", "snap", parts, items, 2000, 1000, 1.0)


class Model:
    """A chat model that is a function of the request and of how often it was asked before; counts what is in flight."""

    name = "model"
    rate_limits = None

    def __init__(self, script: Callable[[str, int], str]) -> None:
        self.script = script
        self.asked: dict[str, int] = {}
        self.in_flight = self.most_in_flight = 0
        self.gate: asyncio.Event | None = None

    async def complete(self, request: ChatRequest) -> ChatReply:
        topic = next(each for each in TOPICS if each in request.messages[1].content.partition("<question>")[0])
        times = self.asked[topic] = self.asked.get(topic, -1) + 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await (asyncio.sleep(0) if self.gate is None else self.gate.wait())
        finally:
            self.in_flight -= 1
        return ChatReply(self.script(topic, times), model=self.name, input_tokens=100, output_tokens=10)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply]:
        said = "Mrs. Gray [S1], they say [S9]."
        yield said
        yield ChatReply(said, input_tokens=100, output_tokens=10)


def pool_of(model: Model) -> EndpointPool:
    config = Config.model_validate({"llm": {"endpoints": {"e": {"kind": "extractive"}}}})
    caller = RetriedCalls(RateLimiter(make_coordinator(config)), RetryPolicy())
    return EndpointPool({"answer": [PricedModel("e", model, paid=False)]}, None, caller, COUNT)


def point(topic: str, helpfulness: float) -> str:
    ref = f"S{TOPICS.index(topic) + 1}"
    return json.dumps({"points": [{"text": f"About the {topic} [{ref}].", "helpfulness": helpfulness}]})


async def mapped(model: Model, about: MapReduceInput | None = None) -> Retrieval:
    return await map_parts(about or material(), pool_of(model), Prompts(), COUNT)


async def test_the_most_helpful_points_come_first_and_what_does_not_help_is_left_out() -> None:
    scores = dict(zip(TOPICS, (10, 90, 0, 40, 0, 0), strict=True))
    found = await mapped(Model(lambda topic, _: point(topic, scores[topic])))
    assert found.context.splitlines() == [
        "## Points",
        "- (helpfulness 90) About the harbour [S1].",
        "- (helpfulness 40) About the quarry [S2].",
        "- (helpfulness 10) About the lighthouse [S3].",
    ]
    assert found.context_refs == {"S1": "chunk-harbour", "S2": "chunk-quarry", "S3": "chunk-lighthouse"}
    scored = {item.chunk_id: item.score for item in found.sources}
    assert [*scored.items()] == [("chunk-harbour", 0.9), ("chunk-quarry", 0.4), ("chunk-lighthouse", 0.1)]
    planned = material().work
    assert found.map_work == replace(planned, calls=6, points=3, unhelpful=3, input_tokens=600, output_tokens=60)
    assert (planned.records, planned.parts) == (6, 6)
    assert set(found.timings_ms) == {"gather", "map", "total"}


async def test_the_answer_cites_what_the_points_cite_and_counts_all_tokens() -> None:
    model = Model(lambda topic, _: point(topic, 50 if topic == "mill" else 0))
    found = await mapped(model)
    answer = [part async for part in answer_pieces(found, pool_of(model), Prompts(), COUNT)][-1]
    assert answer.text == "Mrs. Gray [S1], they say."
    assert [(one.ref, one.kind, one.id) for one in answer.citations] == [("S1", "chunk", "chunk-mill")]
    assert (answer.dropped_citations, answer.input_tokens, answer.output_tokens) == (1, 700, 70)


async def test_where_nothing_helps_the_answer_is_not_known_and_its_calls_are_told() -> None:
    model = Model(lambda topic, _: '{"points": []}')
    found = await mapped(model)
    assert (found.context, found.context_refs) == ("", {})
    assert (found.map_work.unhelpful, found.map_work.failed) == (6, 0)
    (text, answer) = [part async for part in answer_pieces(found, pool_of(model), Prompts(), COUNT)]
    assert text == UNKNOWN_ANSWER
    assert (answer.input_tokens, answer.output_tokens) == (600, 60)


async def test_a_reply_that_cannot_be_used_is_asked_for_again() -> None:
    model = Model(lambda topic, times: point(topic, 10) if times or topic != "mill" else "It is the mill, I think.")
    work = (await mapped(model)).map_work
    assert model.asked == dict.fromkeys(TOPICS, 0) | {"mill": 1}
    assert (work.calls, work.points, work.failed) == (7, 6, 0)
    assert work.input_tokens == 700, "what was refused is paid too"


async def test_no_usable_reply_at_all_is_no_answer() -> None:
    with pytest.raises(RequestRejected, match=r"no usable reply about any part .*6 parts.* no JSON object"):
        await mapped(Model(lambda topic, _: "I think so."))


async def test_calls_at_a_time_are_bounded() -> None:
    model = Model(lambda topic, _: point(topic, 10))
    await mapped(model)
    assert model.most_in_flight == 6
    await mapped(model, material(repeats=4))
    assert model.most_in_flight == 16


async def test_who_gives_up_stops_the_calls() -> None:
    model = Model(lambda topic, _: point(topic, 10))
    model.gate = asyncio.Event()
    task = asyncio.create_task(mapped(model))
    while model.in_flight < 6:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert model.in_flight == 0


async def test_a_failure_of_the_endpoint_is_told_as_it_is_and_stops_the_others() -> None:
    def fail(topic: str, times: int) -> str:
        raise BudgetReached("enough")

    model = Model(fail)
    with pytest.raises(BudgetReached, match="enough"):
        await mapped(model, material(repeats=4))
    assert len(model.asked) < 4 * len(TOPICS)


# ---- through an engine


class Asked(Bench):
    """The engine of `test_query` with a model for parts too; its communities are left and right."""

    def __init__(self, snapshot: Snapshot, reply: Callable[[str], str]) -> None:
        super().__init__(snapshot)
        self.seen: list[str] = []
        self.gate: asyncio.Event | None = None

        async def ask(request: ChatRequest, accept: Callable[[ChatReply], object]) -> object:
            self.seen.append(request.messages[1].content)
            if self.gate is not None:
                await self.gate.wait()
            return accept(ChatReply(reply(request.messages[1].content), input_tokens=5, output_tokens=2))

        self.answers.ask = ask
        self.answers._script = lambda request: "So it is [C1][S1]."

    async def parts(self, mode: str) -> list[Any]:
        return [part async for part in self.engine.answer_stream(Query("a?", mode))]


def helpful(ref: str) -> Callable[[str], str]:
    return lambda told: json.dumps({"points": [{"text": f"It holds [{ref}].", "helpfulness": 70}]})


async def test_a_question_about_all_reports(snapshot: Snapshot) -> None:
    bench = Asked(snapshot, helpful("C2"))
    planned, found, *pieces, answer = await bench.parts("graphrag-global")
    (told,) = bench.seen
    assert "The left" in told
    assert "The right" in told
    assert (planned.map_work, planned.context) == (MapWork(2, 1, planned.map_work.part_tokens, unreported=1), "")
    assert answer.retrieval == found
    (kept,) = found.communities
    assert (kept.hits, kept.score) == (1, 0.7)
    assert [(one.ref, one.id) for one in answer.citations] == [("C1", kept.community_id)]
    assert "".join(pieces) == answer.text == "So it is [C1]."
    assert bench.embedder.asked == [], "no vector is needed"


async def test_a_question_about_all_chunks(snapshot: Snapshot) -> None:
    bench = Asked(snapshot, helpful("S1"))
    answer = (await bench.parts("text-map-reduce"))[-1]
    assert all(f"Text of k{number}" in bench.seen[0] for number in range(3))
    assert [one.kind for one in answer.citations] == ["chunk"]
    again = (await Asked(snapshot, helpful("S1")).parts("text-map-reduce"))[-1]
    assert again.citations == answer.citations, "the order is shuffled alike"


@pytest.mark.parametrize("mode", MAP_REDUCE)
async def test_it_answers_and_does_not_retrieve(snapshot: Snapshot, mode: str) -> None:
    bench = Asked(snapshot, helpful("C1"))
    with pytest.raises(InvalidQuery, match=f"mode: {mode} reads all there is"):
        await bench.engine.retrieve(Query("a?", mode))
    with pytest.raises(InvalidQuery, match="question: it is empty"):
        await bench.engine.answer(Query(" ", mode))
    with pytest.raises(InvalidQuery, match="hirag is no map-reduce"):
        await bench.engine.material(Query("a?", "hirag"))
    assert bench.seen == []


@pytest.mark.parametrize("mode", MAP_REDUCE)
async def test_a_question_that_takes_too_many_calls_is_refused_before_the_first(snapshot: Snapshot, mode: str) -> None:
    engine = Bench(snapshot, RetrievalConfig(map_reduce=MapReduceConfig(max_calls=1))).engine
    assert len((await engine.material(Query("a?", mode))).parts) == 1
    engine._resources.count_tokens = lambda text: 90 * len(text.split())
    with pytest.raises(InvalidQuery, match=r"more than 1 call here, which is retrieval\.map_reduce\.max_calls"):
        await engine.material(Query("a?", mode, context_tokens=1000))


async def test_a_deadline_ends_the_calls(snapshot: Snapshot) -> None:
    bench = Asked(snapshot, helpful("C1"))
    bench.gate = asyncio.Event()
    with pytest.raises(TimeoutError, match="before every part was read"):
        await bench.engine.answer(Query("a?", "graphrag-global"), deadline_s=0.05)
    assert len(bench.seen) == 1


# ---- over HTTP


async def test_calls_are_on_the_bill_the_streamed_one_too() -> None:
    meter = UsageMeter()
    async with Simulator(SimulatorOptions(listen="127.0.0.1:0")) as simulator:
        endpoint = {"base_url": simulator.base_url, "model": "m", "price": {"input": 1.0, "output": 2.0}}
        config = Config.model_validate({"llm": {"endpoints": {"e": endpoint}, "roles": {"answer": "e"}}})
        retried = RetriedCalls(RateLimiter(make_coordinator(config)), RetryPolicy())
        pool = make_pool(config, None, retried, context=CallContext(meter))
        found = await map_parts(material(), pool, Prompts(), COUNT)
        answer = [part async for part in answer_pieces(found, pool, Prompts(), COUNT)][-1]
        await pool.close()
        stats = simulator.endpoint.stats()["total"]
    tokens, usd = meter.spent()
    assert sum(use.calls for use in meter.uses.values()) == 7 == stats["calls"]
    assert tokens == answer.input_tokens + answer.output_tokens
    assert usd == pytest.approx((answer.input_tokens + 2 * answer.output_tokens) / 1e6)


# ---- reports that are not there


@pytest.fixture(scope="module")
def gaps(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """An index with reports of the most prominent communities only."""
    bench = toy_builds.Bench(tmp_path_factory.mktemp("gaps"))
    keys: dict[str, Any] = {"clustering": {"target_size": 4}, "communities": {"report_share": 0.5}}
    return labelled_build(bench, topics(1), leaky_script, max_layers=0, **keys)


@pytest.mark.parametrize("level", ["leaf", "0", "all"])
async def test_communities_that_no_report_stands_for_are_counted(gaps: Snapshot, level: str) -> None:
    engine = engine_of(gaps)
    communities = gaps.table("communities").to_pylist()
    reported = set(gaps.table("reports")["community_id"].to_pylist())
    bare = [row for row in communities if row["is_leaf"] and row["community_id"] not in reported]
    assert 0 < len(bare) < sum(row["is_leaf"] for row in communities)
    asked = Query("What is told?", "graphrag-global", community_level=level)
    answer = await engine.answer(asked)
    assert answer.retrieval.map_work.unreported == len(bare)
    assert "no report, and what is there was not read" in printed(answer)
    work = (await engine.answer(replace(asked, reach=NOBODY))).retrieval.map_work
    entities = gaps.table("entities").to_pylist()
    visible = {row["entity_id"] for row in entities if not row["name"].startswith(HIDDEN)}
    assert work.unreported == sum(not visible.isdisjoint(row["entity_ids"]) for row in bare) < len(bare)


async def test_a_level_deeper_than_the_communities_reads_the_deepest_and_says_so(gaps: Snapshot) -> None:
    asked = Query("What is told?", "graphrag-global", community_level="9")
    answer = await engine_of(gaps).answer(asked)
    assert answer.retrieval.note.startswith("community_level 9 is deeper than every community found")
    assert "Note: community_level 9" in printed(answer)
    plain = await engine_of(gaps).answer(replace(asked, community_level="leaf"))
    assert (plain.retrieval.note, plain.text) == ("", answer.text)


def printed(answer: Answer) -> str:
    with out.capture() as captured:
        show_retrieval(answer.retrieval)
    return captured.get()
