"""A reranker behind a real HTTP endpoint, in the two forms that servers have."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from hirag_dist.composition.models import limited_reranker, make_coordinator
from hirag_dist.config.model import Config
from hirag_dist.errors import ModelUnavailable, RequestRejected, UnusableReply
from hirag_dist.llm.call import CallContext
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy
from hirag_dist.llm.usage import UsageMeter
from tests.llm.endpoints.loopback import reranking, serving

TEXTS = ["aa", "aaaa", "a"]


def score(text: str) -> float:
    return len(text) / 10


def cohere(body: dict[str, Any]) -> web.Response:
    """Reply as Cohere, Jina and vLLM do: the best first."""
    results = [{"index": at, "relevance_score": score(text)} for at, text in enumerate(body["documents"])]
    results.sort(key=lambda each: -each["relevance_score"])
    return web.json_response({"results": results, "usage": {"prompt_tokens": 42, "total_tokens": 42}})


def inference(body: dict[str, Any]) -> web.Response:
    """Reply as Text Embeddings Inference does."""
    if "texts" not in body:
        said = {"error": "Failed to deserialize: missing field `texts`", "error_type": "Validation"}
        return web.json_response(said, status=422)
    scored = reversed(list(enumerate(body["texts"])))
    return web.json_response([{"index": at, "score": score(text)} for at, text in scored])


async def test_scores_stand_in_the_order_of_the_texts() -> None:
    async with reranking(cohere) as (endpoint, stub):
        found = await endpoint.request(("which?", TEXTS))
    assert found.value.tolist() == [0.2, 0.4, 0.1]
    assert found.input_tokens == 42
    assert stub.bodies == [{"model": "model-1", "query": "which?", "documents": TEXTS, "top_n": 3}]
    assert stub.requests[0].path == "/v1/rerank"


async def test_text_embeddings_inference_is_recognised_once() -> None:
    async with reranking(inference) as (endpoint, stub):
        for _ in range(2):
            found = await endpoint.request(("which?", TEXTS))
            assert found.value.tolist() == [0.2, 0.4, 0.1]
            assert found.input_tokens is None
    assert ["texts" in body for body in stub.bodies] == [False, True, True]


@pytest.mark.parametrize(
    ("status", "reply", "error", "said"),
    [
        (400, {"message": "no such model"}, RequestRejected, "400: no such model"),
        (503, {"message": "no such model"}, ModelUnavailable, "503: no such model"),
        (200, {}, UnusableReply, ".*score"),
        (200, {"results": [{"index": 0, "score": 1.0}] * 3}, UnusableReply, ".*score"),
        (200, {"results": [{"index": at, "score": "good"} for at in range(3)]}, UnusableReply, ".*score"),
    ],
)
async def test_a_refusal_or_an_unusable_reply_is_an_error(
    status: int, reply: Any, error: type[Exception], said: str
) -> None:
    async with reranking(lambda body: web.json_response(reply, status=status)) as (endpoint, _):
        with pytest.raises(error, match=rf"endpoint mine \(model-1\) answered {said}"):
            await endpoint.request(("which?", TEXTS))


async def test_long_lists_are_split_counted_and_billed() -> None:
    meter = UsageMeter()
    async with serving(cohere) as stub:
        endpoint = {"kind": "rerank", "base_url": stub.url, "model": "m", "batch_size": 2, "price": {"input": 1.0}}
        config = Config.model_validate({"llm": {"endpoints": {"judge": endpoint}, "roles": {"rerank": "judge"}}})
        retried = RetriedCalls(RateLimiter(make_coordinator(config)), RetryPolicy(2, 0.5))
        reranker = limited_reranker(config, retried, CallContext(meter))
        assert (await reranker.scores("which?", [*TEXTS, "aaa", ""])).tolist() == [0.2, 0.4, 0.1, 0.3, 0.0]
        assert (await reranker.scores("which?", [])).tolist() == []
        await reranker.close()
    use = meter.use("rerank", "m", "judge")
    assert (use.calls, use.input_tokens) == (3, 126)
    assert use.cost_usd == pytest.approx(126e-6)


def test_a_role_has_endpoints_of_its_kind() -> None:
    rerank = {"kind": "rerank", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
    chat, weights = rerank | {"kind": "openai"}, {"kind": "onnx", "path": "x"}
    for endpoint, role in ((rerank, "answer"), (rerank, "embed"), (chat, "rerank"), (weights, "extract")):
        with pytest.raises(ValueError, match=rf"Invalid llm\.roles\.{role}: 'one' is of kind"):
            Config.model_validate({"llm": {"endpoints": {"one": endpoint}, "roles": {role: "one"}}})
    for kind, required in (("rerank", "base_url and model are"), ("onnx", "path is")):
        with pytest.raises(ValueError, match=f"{required} required for an endpoint of kind {kind}"):
            Config.model_validate({"llm": {"endpoints": {"one": {"kind": kind}}}})
