"""Estimated cost of an index, against the build of the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hirag_dist.composition.build import make_executor, resolve
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.execution.runner import StageRunner
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.estimate import FIRST_TOKEN_S, S_PER_TOKEN, estimate_build
from hirag_dist.indexing.pipeline import Build
from hirag_dist.indexing.window_sizes import fit_to_windows
from hirag_dist.storage.store import Store

CORPUS = Path(__file__).parents[2] / "hirag_dist" / "samples" / "corpus"
CHAT = {
    "base_url": "http://127.0.0.1:9",
    "model": "m",
    "price": {"input": 2.0, "output": 8.0},
    "rpm": 60,
    "max_concurrent": 1000,
}
ROLES = ("extract", "summarise", "report")


SMALL = sorted(CORPUS.glob("newton-*"))[:3]


def plan(inputs: list[Path], **keys: Any) -> Any:
    return estimate_build([str(path) for path in inputs], Config.model_validate(keys), Prompts())


def priced(**more: Any) -> dict[str, Any]:
    return {"endpoints": {"paid": CHAT | more}, "roles": dict.fromkeys(ROLES, "paid")}


def test_counts_documents_copies_and_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The same words.")
    (tmp_path / "b.txt").write_text("The same words.")
    (tmp_path / "c.md").write_text("Other words.")
    (tmp_path / "d.pdf").write_bytes(b"no PDF")
    found = plan([tmp_path])
    assert (found.documents, found.duplicates, found.chunks) == (2, 1, 2)
    assert [Path(name).name for name, _ in found.unreadable] == ["d.pdf"]


def test_calls_cost_and_time_of_a_paid_endpoint() -> None:
    found = plan([CORPUS], llm=priced())
    stages = {stage.stage: stage for stage in found.stages}
    extract = stages["extract"]
    assert (extract.endpoint, extract.calls) == ("paid", found.chunks)
    assert extract.input_tokens > found.tokens
    assert extract.cost_usd == pytest.approx((extract.input_tokens * 2 + extract.output_tokens * 8) / 1e6)
    assert extract.seconds == pytest.approx(found.chunks)  # 60 a minute
    assert stages["embed"].cost_usd == 0


def test_extraction_by_names_makes_no_call() -> None:
    assert "extract" not in {stage.stage for stage in plan(SMALL, extraction={"method": "nlp"}).stages}


def test_entity_resolution_is_counted_where_it_asks() -> None:
    def asked(**keys: Any) -> dict[str, Any]:
        return {stage.stage: stage for stage in plan(SMALL, llm=priced(), **keys).stages}

    assert "resolve" not in asked()
    on = {"enabled": True}
    packed, alone = asked(resolution=on)["resolve"], asked(resolution=on, pack_tokens=0)["resolve"]
    assert packed.endpoint == "paid"
    assert 0 < packed.calls < alone.calls
    assert packed.input_tokens < alone.input_tokens
    assert packed.output_tokens == alone.output_tokens


def test_shares_of_several_endpoints_and_their_time() -> None:
    llm = {
        "endpoints": {"fast": CHAT | {"rpm": 600}, "slow": CHAT | {"rpm": 6}},
        "roles": {"extract": [{"endpoint": "fast", "weight": 3}, {"endpoint": "slow"}]},
    }
    found = plan([CORPUS], llm=llm)
    fast, slow = (stage for stage in found.stages if stage.stage == "extract")
    assert (fast.endpoint, slow.endpoint) == ("fast", "slow")
    assert fast.calls == pytest.approx(3 * slow.calls, abs=2)
    assert fast.calls + slow.calls == found.chunks
    assert (slow.bound, slow.seconds) == ("rpm", pytest.approx(slow.calls * 10))
    assert found.seconds == pytest.approx(slow.seconds)  # side by side, and built-in models have no limits


def test_without_limits_the_assumed_latency_bounds_the_time() -> None:
    llm = priced(rpm=None, max_concurrent=4)
    extract = estimate_build(
        [str(path) for path in SMALL], Config.model_validate({"llm": llm}), Prompts(), latency_s=2.0
    ).stages[0]
    assert (extract.bound, extract.latency_s) == ("concurrency", 2.0)
    assert extract.seconds == pytest.approx(extract.calls * 2.0 / 4)
    assumed = plan(SMALL, llm=llm).stages[0]
    assert assumed.latency_s == pytest.approx(FIRST_TOKEN_S + S_PER_TOKEN * assumed.output_tokens / assumed.calls)


def test_a_small_corpus_is_planned_within_a_factor_of_two(tmp_path: Path) -> None:
    """Calls and tokens of every stage that matters, against a build of the sample corpus with the built-in model."""
    config = Config.model_validate({"execution": {"executor": "inline"}})
    executor = make_executor(config, Store(str(tmp_path)), None, None)
    runner = StageRunner(Store(str(tmp_path)), executor, (), config.max_reject_ratio)
    try:
        Build(BuildContext(runner, config, Prompts(), resolve(config))).index([str(CORPUS)])
    finally:
        executor.close()
    planned = estimate_build([str(CORPUS)], config, Prompts())
    for stage in ("extract", "summarise", "reports", ""):
        uses = [
            use
            for label, meter in runner.bill.by_stage.items()
            if label.startswith(stage)
            for use in meter.uses.values()
        ]
        wanted = [each for each in planned.stages if each.stage.startswith(stage) and each.stage != "embed"]
        calls, tokens = sum(u.calls for u in uses), sum(u.input_tokens + u.output_tokens for u in uses)
        assert calls / 2 <= sum(each.calls for each in wanted) <= 2 * calls, stage
        assert tokens / 2 <= sum(each.input_tokens + each.output_tokens for each in wanted) <= 2 * tokens, stage


def test_a_small_window_means_more_calls() -> None:
    endpoints = {"local": {"base_url": "http://127.0.0.1:9/v1", "model": "m", "context_window": 1024}}
    roles = dict.fromkeys(("extract", "summarise", "report"), "local")
    config = Config.model_validate({"llm": {"endpoints": endpoints, "roles": roles}})
    cut = fit_to_windows(config, dict.fromkeys(roles, 1024), Prompts())
    inputs = [str(path) for path in SMALL]
    whole, small = (estimate_build(inputs, each, Prompts()) for each in (config, cut))
    assert small.calls > 2 * whole.calls
    assert small.windows == dict.fromkeys(roles, 1024)
