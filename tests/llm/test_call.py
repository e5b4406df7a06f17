"""A role whose replies are all refused is not asked about every unit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from hirag_dist.core.prompts.reply_validation import CutOffReply, MalformedReply
from hirag_dist.llm.call import MIN_UNITS, CallContext, NotSent, PricedModel, SystematicRefusals
from hirag_dist.llm.chat import EndpointPool
from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy
from hirag_dist.types import ChatReply, ChatRequest, Message, Rejected

ATTEMPTS, CONCURRENCY, UNITS = 3, 4, 100


class Model:
    """Replies with the last word of the first message, and counts the requests."""

    name = "m"
    rate_limits = None

    def __init__(self) -> None:
        self.n_calls = 0

    async def complete(self, request: ChatRequest) -> ChatReply:
        self.n_calls += 1
        await asyncio.sleep(0)
        return ChatReply(request.messages[0].content.split()[-1])

    async def stream(self, request: ChatRequest) -> AsyncIterator[str | ChatReply]:
        yield await self.complete(request)

    async def close(self) -> None:
        pass


class Replies:
    """Stores replies at once: a real store makes them durable in groups, and requests go out meanwhile."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] = {}

    async def get(self, key: str) -> Any:
        return self.stored.get(key)

    async def put(self, key: str, record: Any, replaced: set[str]) -> None:
        self.stored[key] = record


def pool(model: Model, ledger: Any) -> EndpointPool:
    limits = RateLimiter(QuotaCoordinator({"e": EndpointLimits(None, None, CONCURRENCY)}))
    roles = {role: [PricedModel("e", model)] for role in ("extract", "report")}
    return EndpointPool(roles, ledger, RetriedCalls(limits, RetryPolicy(ATTEMPTS, 0.5)), len)


def request(number: int, word: str, role: str = "extract") -> ChatRequest:
    return ChatRequest(role, (Message("user", f"unit {number} {word}"),), unit=str(number))


def accept(reply: ChatReply) -> str:
    if reply.text != "good":
        raise MalformedReply("no record in it")
    return reply.text


async def ask_all(chat: EndpointPool, words: list[str]) -> list[str | Rejected]:
    return await asyncio.gather(*(chat.ask(request(number, word), accept) for number, word in enumerate(words)))


@pytest.fixture
def ledger() -> Replies:
    return Replies()


async def test_calls_stop_when_all_units_are_refused(ledger: Replies) -> None:
    model = Model()
    chat = pool(model, ledger)
    results = await ask_all(chat, ["bad"] * UNITS)
    assert all(isinstance(each, Rejected) for each in results)  # each is recorded, so that each can be asked again
    rejected = [each for each in results if isinstance(each, Rejected)]
    assert MIN_UNITS * ATTEMPTS <= model.n_calls <= MIN_UNITS * ATTEMPTS + CONCURRENCY < UNITS
    assert sum(each.attempts for each in rejected) == model.n_calls
    unsent = [each for each in rejected if not each.attempts]
    assert len(unsent) > UNITS / 2
    assert all(
        "units of role extract were all refused; the last reason: no record in it" in each.reason for each in unsent
    )
    assert await chat.ask(request(0, "good", role="report"), accept) == "good"  # another role goes on


async def test_one_accepted_reply_keeps_the_calls_going(ledger: Replies) -> None:
    model = Model()
    results = await ask_all(pool(model, ledger), ["good", *["bad"] * (UNITS - 1)])
    assert results[0] == "good"
    assert model.n_calls == 1 + ATTEMPTS * (UNITS - 1)


CUT_OFF = "1|Ada|person|She wrote notes.\n2|Lond"


@pytest.mark.parametrize("divisible", [False, True])
async def test_units_whose_reply_is_kept_in_part_or_that_are_divided_hold_up_no_other(
    ledger: Replies, divisible: bool
) -> None:
    class CutOff(Model):
        async def complete(self, request: ChatRequest) -> ChatReply:
            self.n_calls += 1
            return ChatReply(CUT_OFF, "length", output_tokens=10)

    def accept_whole(reply: ChatReply) -> str:
        if reply.finish_reason == "length":
            raise CutOffReply("cut off")
        return reply.text

    chat = pool(CutOff(), ledger)
    requests = [replace(request(number, ""), divisible=divisible, max_tokens=1000) for number in range(UNITS)]
    async with asyncio.timeout(60):  # it would wait for ever
        results = await asyncio.gather(*(chat.ask(each, accept_whole) for each in requests))
    whole = [each.too_long if isinstance(each, Rejected) else each for each in results]
    assert set(whole) == ({True} if divisible else {CUT_OFF.partition("\n")[0]})


def refused(refusals: SystematicRefusals, n_units: int) -> bool:
    """Refuse units to the last, and return whether the next one is not sent."""
    for number in range(n_units):
        refusals.note_refused("extract", str(number), "empty", final=True)
    try:
        refusals.check("extract")
    except NotSent:
        return True
    return False


@pytest.mark.parametrize(("seconds", "n_units"), [(59.0, 8), (60.0, 3)])
def test_a_slow_model_is_stopped_after_fewer_units(seconds: float, n_units: int) -> None:
    def begun() -> SystematicRefusals:
        now = [0.0]
        refusals = SystematicRefusals(lambda: now[0])
        refusals.note_refused("extract", "0", "empty")
        now[0] = seconds
        return refusals

    assert not refused(begun(), n_units - 1)
    assert refused(begun(), n_units)
    with_success = begun()
    with_success.note_accepted("extract")
    assert not refused(with_success, 10 * n_units)


async def test_stored_refusals_do_not_stop_new_calls(ledger: Replies) -> None:
    await ask_all(pool(Model(), ledger), ["bad"] * MIN_UNITS)
    model = Model()
    results = await ask_all(pool(model, ledger), ["bad"] * MIN_UNITS + ["good"] * 3)
    assert results[-3:] == ["good"] * 3
    assert model.n_calls == 3


async def test_a_retry_asks_units_that_were_not_sent(ledger: Replies) -> None:
    await ask_all(pool(Model(), ledger), ["bad"] * UNITS)
    model = Model()
    model.complete = _good  # type: ignore[method-assign] - the model has been mended
    chat = pool(model, ledger).with_context(CallContext(is_retry=True))
    assert set(await ask_all(chat, ["bad"] * UNITS)) == {"good"}


async def _good(request: ChatRequest) -> ChatReply:
    return ChatReply("good")
