"""A pool that may not send: which calls it notes, for whom, and what it makes of replies that batches brought."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from hirag_dist.core.prompts.reply_parsing import MalformedReply
from hirag_dist.errors import BudgetReached, Deferred
from hirag_dist.llm.batch_api import MAX_LINE_BYTES, BatchCall, Collector, parse_custom_id, read_calls, result_lines
from hirag_dist.llm.call import CallContext
from hirag_dist.llm.chat import EndpointPool
from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.priced_model import PricedModel
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.reply_store.codec import batch_record_of
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatReply, ChatRequest, Message, Rejected

REPLY = ChatReply("fine", input_tokens=10, output_tokens=5)


class Silent:
    """Takes batches, and must not be asked."""

    name = "model"
    rate_limits = None

    def batch_body(self, request: ChatRequest) -> bytes:
        return json.dumps({"said": request.messages[-1].content}).encode()

    async def complete(self, request: ChatRequest) -> ChatReply:
        raise AssertionError("it was asked")

    async def stream(self, request: ChatRequest):  # type: ignore[no-untyped-def]
        raise AssertionError("it was asked")
        yield ""

    async def close(self) -> None:
        pass


def question(text: str = "hello there") -> ChatRequest:
    return ChatRequest("extract", (Message("user", text),), unit="u", max_tokens=50)


def pool(store: Store, *targets: PricedModel) -> EndpointPool:
    names = {target.endpoint: EndpointLimits(None, None, 8) for target in targets}
    caller = RetriedCalls(RateLimiter(QuotaCoordinator(names, max_usd=900.0), spending=True), RetryPolicy(3, 0.5))
    return EndpointPool({"extract": targets}, Ledger(store), caller, lambda text: len(text.split()))


def target(endpoint: str = "e", weight: float = 1.0) -> PricedModel:
    return PricedModel(endpoint, Silent(), price=(1e6, 1e6, 2e6), weight=weight)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


@pytest.fixture
def collector() -> Collector:
    return Collector("this run")


def noted(collector: Collector) -> list[tuple[BatchCall, dict[str, object]]]:
    return [(call, json.loads(line)) for call, line in read_calls(collector.content())]


async def test_a_missing_reply_is_noted_once_with_what_it_can_cost(store: Store, collector: Collector) -> None:
    asked = pool(store, target()).with_context(CallContext(UsageMeter(), collector))
    for _ in range(2):
        with pytest.raises(Deferred):
            await asked.ask(question("line\tend\n\u2028\r here"), str)
    ((call, line),) = noted(collector)
    n_input = 3 + 2 * 4  # words, and what is around a message and the whole
    assert (call.endpoint, call.role, call.most_tokens) == ("e", "extract", n_input + 50)
    assert call.most_usd == pytest.approx((n_input + 2 * 50) / 2)
    assert line == {
        "custom_id": f"{call.key}.{n_input}",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"said": "line\tend\n\u2028\r here"},
    }
    assert parse_custom_id(str(line["custom_id"])) == (call.key, n_input)


@pytest.mark.parametrize(("limit", "n_output"), [(700, 700), (None, 8192)])
async def test_a_reply_without_a_limit_of_its_own_can_have_its_endpoint_s(
    store: Store, collector: Collector, limit: int | None, n_output: int
) -> None:
    asked = pool(store, replace(target(), max_reply_tokens=limit)).with_context(CallContext(UsageMeter(), collector))
    with pytest.raises(Deferred):
        await asked.ask(replace(question(), max_tokens=None), str)
    ((call, _),) = noted(collector)
    n_input = 2 + 2 * 4
    assert call.most_tokens == n_input + n_output
    assert call.most_usd == pytest.approx((n_input + 2 * n_output) / 2)


async def test_calls_are_shared_among_the_endpoints_of_a_model(store: Store, collector: Collector) -> None:
    asked = pool(store, target("small"), target("large", weight=3.0)).with_context(CallContext(UsageMeter(), collector))
    for number in range(200):
        with pytest.raises(Deferred):
            await asked.ask(question(f"question {number}"), str)
    n_large = sum(call.endpoint == "large" for call, _ in noted(collector))
    assert 130 < n_large < 170


async def test_an_endpoint_that_takes_no_batches_is_asked(store: Store, collector: Collector) -> None:
    class Plain:
        name = "plain"
        rate_limits = None
        stream, close = Silent.stream, Silent.close

        async def complete(self, request: ChatRequest) -> ChatReply:
            return REPLY

    asked = pool(store, replace(target(), model=Plain()))  # type: ignore[arg-type]
    assert await asked.ask(question(), lambda reply: reply.text) == "fine"
    assert len(collector) == 0


async def test_a_reply_from_a_batch_costs_half(store: Store, collector: Collector) -> None:
    asked = pool(store, target()).with_context(CallContext(UsageMeter(), collector))
    with pytest.raises(Deferred):
        await asked.ask(question(), str)
    ((call, _),) = noted(collector)
    await Ledger(store).put(call.key, batch_record_of(REPLY, "e", "this run"))
    meter = UsageMeter()
    collected = pool(store, target()).with_context(CallContext(meter, collector))
    assert await collected.ask(question(), lambda reply: reply.text) == "fine"
    (use,) = meter.uses.values()
    assert (use.calls, use.ledger_hits, use.cost_usd, use.sent_cost_usd) == (1, 1, (10 + 2 * 5) / 2, 0.0)


@pytest.mark.parametrize(("again", "n_asked"), [(False, 3), (True, 4)])
async def test_refused_replies_count_as_attempts(store: Store, collector: Collector, again: bool, n_asked: int) -> None:
    """On a retry of dead letters, replies of this run count as attempts and earlier ones do not."""

    def refuse(reply: ChatReply) -> str:
        raise MalformedReply("never right")

    runs = iter(["an earlier run", "this run", "this run", "this run", "this run"])
    context = CallContext(UsageMeter(), collector, is_retry=again)
    for n_noted in range(1, 6):
        try:
            found = await pool(store, target()).with_context(context).ask(question(), refuse)
            break
        except Deferred:
            call, line = noted(collector)[-1]
            assert len(collector) == n_noted
            await Ledger(store).put(call.key, batch_record_of(REPLY, "e", next(runs)))
    else:
        raise AssertionError("it was asked without end")
    assert isinstance(found, Rejected)
    assert found.attempts == len(collector) == n_asked
    assert "never right" in str(line["body"])  # each attempt tells the model why the one before was refused


async def test_what_batches_cost_is_taken_from_what_single_calls_may(store: Store) -> None:
    class Talking(Silent):
        async def complete(self, request: ChatRequest) -> ChatReply:
            return REPLY

    coordinator = QuotaCoordinator({"e": EndpointLimits(None, None, 8)}, max_usd=200.0)
    one = replace(target(), model=Talking())
    caller = RetriedCalls(RateLimiter(coordinator, spending=True), RetryPolicy(3, 0.5))
    asked = EndpointPool({"extract": [one]}, Ledger(store), caller, lambda text: len(text.split()))
    assert await asked.ask(question("the first"), lambda reply: reply.text) == "fine"  # it costs 20 and can cost 110
    coordinator.charge(1000, 100.0)
    with pytest.raises(BudgetReached, match=r"\$120\.0000 spent"):
        await asked.ask(question("the second"), str)


@pytest.mark.parametrize(
    "custom_id", ["", "x.1", "00ff.1", "ab" * 20, "AB" * 20 + ".1", "ab" * 20 + ".٣", "ab" * 20 + ".1e9"]
)
def test_a_foreign_id_has_no_key(custom_id: str) -> None:
    assert parse_custom_id(custom_id) == ("", 0)


def test_lines_of_results_come_in_bounded_groups_without_those_that_are_too_long() -> None:
    long = b"x" * (MAX_LINE_BYTES + 5) + b"\n"
    file = io.BytesIO(b"a\n" + long + b"b\n" + long[:-1])
    assert result_lines(file, 2) == [b"a\n", b""]
    assert result_lines(file, 9) == [b"b\n", b""]
    assert result_lines(file, 9) == []
    many = io.BytesIO((b"y" * (MAX_LINE_BYTES - 1) + b"\n") * 9)
    assert len(result_lines(many, 9)) == 4, "32 MiB"
