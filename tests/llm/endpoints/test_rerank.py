"""A reranker behind a real HTTP endpoint, in the two forms that servers have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from hirag_dist.composition.models import limited_reranker, make_coordinator
from hirag_dist.config.model import Config
from hirag_dist.errors import ModelUnavailable, RequestRejected, UnusableReply
from hirag_dist.llm.call import CallContext
from hirag_dist.llm.endpoints.openai_client import EndpointSettings
from hirag_dist.llm.endpoints.rerank import RerankEndpoint
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy
from hirag_dist.llm.usage import UsageMeter
from tests.llm.endpoints.loopback import loopback

Reply = Callable[[dict[str, Any]], tuple[int, Any]]


class Server:
    """Replies to POST /v1/rerank as a function says; `asked` has the bodies."""

    def __init__(self) -> None:
        self.reply: Reply = cohere
        self.asked: list[dict[str, Any]] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        status, value = self.reply(self.asked[-1]) if request.path == "/v1/rerank" else (404, {"message": request.path})
        return web.json_response(value, status=status)


def score(text: str) -> float:
    return len(text) / 10


def cohere(body: dict[str, Any]) -> tuple[int, Any]:
    """Reply as Cohere, Jina and vLLM do: the best first."""
    results = [{"index": at, "relevance_score": score(text)} for at, text in enumerate(body["documents"])]
    results.sort(key=lambda each: -each["relevance_score"])
    return 200, {"results": results, "usage": {"prompt_tokens": 42, "total_tokens": 42}}


def inference(body: dict[str, Any]) -> tuple[int, Any]:
    """Reply as Text Embeddings Inference does."""
    if "texts" not in body:
        return 422, {"error": "Failed to deserialize: missing field `texts`", "error_type": "Validation"}
    return 200, [{"index": at, "score": score(text)} for at, text in reversed(list(enumerate(body["texts"])))]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    async with loopback(made.handle) as url:
        made.url = f"{url}/v1"
        yield made


@pytest.fixture
def endpoint(server: Server) -> RerankEndpoint:
    return RerankEndpoint(EndpointSettings("judge", server.url, "key", "rerank-1", first_token_timeout_s=5))


TEXTS = ["aa", "aaaa", "a"]


async def test_scores_stand_in_the_order_of_the_texts(server: Server, endpoint: RerankEndpoint) -> None:
    found = await endpoint.request("which?", TEXTS)
    assert found.scores.tolist() == [0.2, 0.4, 0.1]
    assert found.input_tokens == 42
    assert server.asked == [{"model": "rerank-1", "query": "which?", "documents": TEXTS, "top_n": 3}]
    await endpoint.close()


async def test_text_embeddings_inference_is_recognised_once(server: Server, endpoint: RerankEndpoint) -> None:
    server.reply = inference
    for _ in range(2):
        found = await endpoint.request("which?", TEXTS)
        assert found.scores.tolist() == [0.2, 0.4, 0.1]
        assert found.input_tokens is None
    assert ["texts" in body for body in server.asked] == [False, True, True]
    await endpoint.close()


REFUSALS = [(400, RequestRejected), (503, ModelUnavailable)]


@pytest.mark.parametrize(("status", "error"), REFUSALS)
async def test_a_refusal_is_an_error(
    server: Server, endpoint: RerankEndpoint, status: int, error: type[Exception]
) -> None:
    server.reply = lambda body: (status, {"message": "no such model"})
    with pytest.raises(error, match=f"endpoint judge .rerank-1. answered {status}: no such model"):
        await endpoint.request("which?", TEXTS)
    await endpoint.close()


@pytest.mark.parametrize(
    "reply",
    [
        {},
        {"results": [{"index": 0, "score": 1.0}] * 3},
        {"results": [{"index": at, "score": "good"} for at in range(3)]},
    ],
)
async def test_an_unusable_reply_is_an_error(server: Server, endpoint: RerankEndpoint, reply: Any) -> None:
    server.reply = lambda body: (200, reply)
    with pytest.raises(UnusableReply, match=r"endpoint judge .rerank-1. answered .*score"):
        await endpoint.request("which?", TEXTS)
    await endpoint.close()


async def test_long_lists_are_split_counted_and_billed(server: Server) -> None:
    endpoint = {"kind": "rerank", "base_url": server.url, "model": "m", "batch_size": 2, "price": {"input": 1.0}}
    config = Config.model_validate({"llm": {"endpoints": {"judge": endpoint}, "roles": {"rerank": "judge"}}})
    meter = UsageMeter()
    retried = RetriedCalls(RateLimiter(make_coordinator(config)), RetryPolicy(2, 0.5))
    reranker = limited_reranker(config, retried, CallContext(meter))
    assert (await reranker.scores("which?", [*TEXTS, "aaa", ""])).tolist() == [0.2, 0.4, 0.1, 0.3, 0.0]
    assert (await reranker.scores("which?", [])).tolist() == []
    use = meter.use("rerank", "m", "judge")
    assert (use.calls, use.input_tokens) == (3, 126)
    assert use.cost_usd == pytest.approx(126e-6)
    await reranker.close()


def test_a_role_has_endpoints_of_its_kind() -> None:
    rerank = {"kind": "rerank", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
    chat = {"base_url": "http://127.0.0.1:1/v1", "model": "m"}
    for endpoint, role in ((rerank, "answer"), (rerank, "embed"), (chat, "rerank")):
        with pytest.raises(ValueError, match=rf"Invalid llm\.roles\.{role}: 'one' is of kind"):
            Config.model_validate({"llm": {"endpoints": {"one": endpoint}, "roles": {role: "one"}}})
    with pytest.raises(ValueError, match="base_url and model are required for an endpoint of kind rerank"):
        Config.model_validate({"llm": {"endpoints": {"one": {"kind": "rerank"}}}})
