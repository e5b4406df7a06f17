"""Choice of the model, the key of its reply, and replies that are not stored."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from hirag_dist.core.prompts.reply_parsing import MalformedReply
from hirag_dist.errors import BudgetReached, ModelUnavailable, RequestRejected
from hirag_dist.llm.call import CallContext, PricedModel, ledger_key
from hirag_dist.llm.chat import EndpointPool
from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatReply, ChatRequest, Message
from tests.ledger_sizes import ledger_size


class Named:
    """Answers with its own name."""

    rate_limits = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.n_calls = 0
        self.n_closed = 0

    async def complete(self, request: ChatRequest) -> ChatReply:
        self.n_calls += 1
        return ChatReply(self.name, input_tokens=10, cached_tokens=4, output_tokens=5)

    async def stream(self, request: ChatRequest) -> AsyncIterator[str | ChatReply]:
        for letter in self.name:
            yield letter
        yield await self.complete(request)

    async def close(self) -> None:
        self.n_closed += 1


def question(number: int = 0) -> ChatRequest:
    return ChatRequest("extract", (Message("user", f"question {number}"),), unit="u")


def pool(ledger: Ledger | None, *models: PricedModel) -> EndpointPool:
    return EndpointPool(
        {"extract": models, "report": models},
        ledger,
        RetriedCalls(RateLimiter(QuotaCoordinator({"e": EndpointLimits(None, None, 100)})), RetryPolicy(2, 0.5)),
        lambda text: len(text.split()),
    )


def text_of(reply: ChatReply) -> str:
    return reply.text


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(Store(str(tmp_path)))


async def test_the_request_alone_chooses_among_models_by_their_weights() -> None:
    models = PricedModel("e", Named("a"), weight=3.0), PricedModel("e", Named("b"))
    answers = [await pool(None, *models).ask(question(number), text_of) for number in range(400)]
    counts = Counter(answers)
    assert set(counts) == {"a", "b"}
    assert 60 <= counts["b"] <= 140  # a quarter
    again = pool(None, *models)
    assert [again.model_name(question(number)) for number in range(400)] == answers


async def test_every_attempt_stays_with_the_model_of_the_first() -> None:
    shared = pool(None, PricedModel("e", Named("a")), PricedModel("e", Named("b")))
    for number in range(20):
        seen: list[str] = []

        def refuse(reply: ChatReply, seen: list[str] = seen) -> str:
            seen.append(reply.text)
            raise MalformedReply("no")

        await shared.ask(question(number), refuse)
        assert len(seen) == 2
        assert len(set(seen)) == 1


async def test_built_in_models_leave_nothing_in_the_ledger(ledger: Ledger, tmp_path: Path) -> None:
    model = Named("builtin")
    computing = pool(ledger, PricedModel("no endpoint", model, paid=False))
    assert [await computing.ask(question(), text_of) for _ in range(2)] == ["builtin"] * 2
    assert (model.n_calls, ledger_size(Store(str(tmp_path))).records) == (2, 0)


def test_the_ledger_key_depends_on_all_that_decides_the_reply_and_on_nothing_else() -> None:
    chosen = PricedModel("e", Named("m"), settings="t=0")
    first = question()
    key = ledger_key(first, chosen, 0)
    same = [
        ledger_key(replace(first, role="report", unit="other", round=3), chosen, 0),
        ledger_key(replace(first, max_tokens=5, types=("person",), max_items=16), chosen, 0),
        ledger_key(first, replace(chosen, endpoint="f", price=(1.0, 2.0, 3.0)), 0),
    ]
    other = [
        ledger_key(question(1), chosen, 0),
        ledger_key(replace(first, messages=(Message("system", "question 0"),)), chosen, 0),
        ledger_key(replace(first, form="extract-graph"), chosen, 0),
        ledger_key(replace(first, form="map-answer", max_tokens=5), chosen, 0),
        ledger_key(first, replace(chosen, settings="t=1"), 0),
        ledger_key(first, replace(chosen, model=Named("n")), 0),
        ledger_key(first, chosen, 1),
    ]
    assert set(same) == {key}
    assert len({key, *other}) == 1 + len(other)


async def test_costs_are_counted_with_the_cache_price(ledger: Ledger) -> None:
    priced = PricedModel("e", Named("m"), price=(1e6, 0.5e6, 2e6))
    meter = UsageMeter()
    await pool(ledger, priced).with_context(CallContext(meter)).ask(question(), text_of)
    use = next(iter(meter.uses.values()))
    assert use.cost_usd == use.sent_cost_usd == 6 * 1.0 + 4 * 0.5 + 5 * 2.0
    back = UsageMeter.from_rows(meter.rows())
    back.add(meter)
    assert back.use("extract", "m", "e").calls == 2


async def test_the_most_that_a_reply_can_have_is_its_endpoint_s_limit(ledger: Ledger) -> None:
    """A call of five words and a reply of at most 100 tokens fits a limit of 130; one of 8192 would not."""
    coordinator = QuotaCoordinator({"e": EndpointLimits(None, None, 100)}, max_tokens=130)
    caller = RetriedCalls(RateLimiter(coordinator, spending=True), RetryPolicy(2, 0.5))
    small = EndpointPool({"extract": [PricedModel("e", Named("m"), max_reply_tokens=100)]}, ledger, caller, len)
    assert await small.ask(question(), text_of) == "m"
    large = EndpointPool({"extract": [PricedModel("e", Named("n"))]}, ledger, caller, len)
    with pytest.raises(BudgetReached, match="may use 82"):
        await large.ask(question(), text_of)


async def test_of_equal_requests_never_two_are_on_their_way(ledger: Ledger) -> None:
    """The first fails; those that waited for it go one after another."""
    present = most = 0

    class Failing(Named):
        async def complete(self, request: ChatRequest) -> ChatReply:
            nonlocal present, most
            present += 1
            most = max(most, present)
            await asyncio.sleep(0)
            present -= 1
            self.n_calls += 1
            if self.n_calls == 1:
                raise RequestRejected("not this one")
            return await super().complete(request)

    asking = pool(ledger, PricedModel("e", Failing("m")))
    outcomes = await asyncio.gather(*(asking.ask(question(), text_of) for _ in range(6)))
    assert most == 1
    assert sum(each == "m" for each in outcomes) == 5


class Streaming(Named):
    """Fails after some letters of its name."""

    def __init__(self, name: str, n_letters: int) -> None:
        super().__init__(name)
        self.n_letters = n_letters

    async def stream(self, request: ChatRequest) -> AsyncIterator[str | ChatReply]:
        self.n_calls += 1
        for letter in self.name[: self.n_letters]:
            yield letter
        raise ModelUnavailable("gone")


@pytest.mark.parametrize("n_letters", [0, 2])
async def test_a_stream_moves_to_another_model_until_it_has_begun(n_letters: int) -> None:
    broken, sound = Streaming("broken", n_letters), Named("sound")
    asked = pool(None, PricedModel("e", broken, weight=1e9), PricedModel("e", sound, weight=1e-9))
    pieces: list[str] = []
    try:
        async for piece in asked.stream(question()):
            pieces.append(piece.text if isinstance(piece, ChatReply) else piece)
    except ModelUnavailable:
        pass
    assert "".join(pieces) == ("br" if n_letters else "soundsound")
    assert (broken.n_calls, sound.n_calls) == (1, 0 if n_letters else 1)


async def test_parts_of_a_pack_are_found_by_unit_and_cost_what_the_pack_did(ledger: Ledger) -> None:
    model = Named("m")
    asked = pool(ledger, PricedModel("e", model))
    units = asked.unit_replies
    parts = [question(1), question(2), question(3)]
    assert await units.find(parts) == [None] * 3
    pack = question(123)
    reply = await asked.ask(pack, lambda reply: reply)
    assert isinstance(reply, ChatReply)
    await units.store(pack, [(parts[0], "first"), (parts[1], "second")])
    meter = UsageMeter()
    found_units = pool(ledger, PricedModel("e", model)).with_context(CallContext(meter)).unit_replies
    first, second, none = await found_units.find(parts)
    assert none is None
    assert (first.reply.text, second.reply.text) == ("first", "second")
    for kind in ("input_tokens", "cached_tokens", "output_tokens"):
        assert getattr(first.reply, kind) + getattr(second.reply, kind) == getattr(reply, kind)
    found_units.count("extract", [first, second, first])
    use = meter.use("extract", "m", "e")
    assert (use.calls, use.ledger_hits, use.input_tokens) == (1, 1, reply.input_tokens), "one pack, counted once"
