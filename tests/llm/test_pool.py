"""The pool: a reply is paid once, stored before use, asked again when refused, and never lost."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hirag_dist.core.prompts.reply_parsing import MalformedReply, parse_extraction
from hirag_dist.errors import BudgetReached, ContextLengthExceeded, RequestRejected, StoreError
from hirag_dist.llm.call import CallContext, PricedModel, ledger_key
from hirag_dist.llm.chat import EndpointPool
from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatReply, ChatRequest, Message, Rejected


class Model:
    """Answers by a function of the request; counts what it was asked."""

    def __init__(self, answer: Callable[[ChatRequest, int], ChatReply]) -> None:
        self.name = "model"
        self.asked: list[ChatRequest] = []
        self._answer = answer

    rate_limits = None

    async def complete(self, request: ChatRequest) -> ChatReply:
        self.asked.append(request)
        return self._answer(request, len(self.asked))

    async def stream(self, request: ChatRequest):  # type: ignore[no-untyped-def]
        yield (await self.complete(request)).text

    async def close(self) -> None:
        self.asked.clear()


def reply(text: str) -> ChatReply:
    return ChatReply(text, input_tokens=10, output_tokens=5)


def question(text: str = "hello") -> ChatRequest:
    return ChatRequest("extract", (Message("user", text),), unit="u")


def pool(model: Model, store: Store, attempts: int = 3, **limits: float) -> EndpointPool:
    coordinator = QuotaCoordinator({"e": EndpointLimits(None, None, 8)}, **limits)  # type: ignore[arg-type]
    priced = PricedModel("e", model, price=(1e6, 1e6, 1e6))
    caller = RetriedCalls(RateLimiter(coordinator, spending=bool(limits)), RetryPolicy(attempts, 0.5))
    return EndpointPool({"extract": [priced]}, Ledger(store), caller, len)


async def test_a_reply_is_paid_once_across_runs(store: Store) -> None:
    model = Model(lambda request, n: reply("yes"))
    first = await pool(model, store).ask(question(), lambda r: r.text)
    meter = UsageMeter()
    second = await pool(model, store).with_context(CallContext(meter)).ask(question(), lambda r: r.text)
    assert (first, second, len(model.asked)) == ("yes", "yes", 1)
    use = next(iter(meter.uses.values()))
    assert (use.calls, use.ledger_hits, use.input_tokens, use.sent_tokens) == (1, 1, 10, 0)


async def test_a_refused_reply_is_asked_again_with_the_reason_and_without_the_reply(store: Store) -> None:
    model = Model(lambda request, n: reply("bad" if n == 1 else "good"))

    def accept(answer: ChatReply) -> str:
        if answer.text == "bad":
            raise MalformedReply("it is wrong")
        return answer.text

    assert await pool(model, store).ask(question(), accept) == "good"
    (message,) = model.asked[1].messages
    assert message.content.startswith("hello")
    assert "it is wrong" in message.content
    assert "bad" not in message.content
    assert (model.asked[0].temperature, model.asked[1].temperature) == (None, 0.7)
    assert await pool(model, store).ask(question(), accept) == "good"
    assert len(model.asked) == 2


LOOP = "".join(f"{at}|Ada|person|A poet.\n" for at in range(20))


def names(answer: ChatReply) -> list[str]:
    return [entity.name for entity in parse_extraction(answer).entities]


async def test_a_loop_is_left_by_a_penalty_also_at_an_endpoint_that_refuses_one(store: Store) -> None:
    def answer(request: ChatRequest, n: int) -> ChatReply:
        if request.frequency_penalty is not None:
            raise RequestRejected("Unsupported parameter: frequency_penalty")
        return replace(reply(LOOP), finish_reason="length") if request.temperature is None else reply("1|Bob|person|b")

    model = Model(answer)
    asked = replace(question(), max_tokens=100)
    assert await pool(model, store).ask(asked, names) == ["Bob"]
    sent = [(each.temperature, each.frequency_penalty, each.max_tokens, each.messages) for each in model.asked]
    same = asked.messages
    assert sent == [(None, None, 100, same), (0.7, 0.5, 100, same), (0.7, None, 100, same)]


async def test_a_reply_that_is_cut_off_gets_twice_the_limit_and_at_last_what_is_complete_is_kept(store: Store) -> None:
    model = Model(lambda request, n: ChatReply("1|Ada|person|a\n2|Bob|per", "length"))
    asked = replace(question(), max_tokens=100)
    for _ in range(2):  # the second time from stored replies
        assert await pool(model, store).ask(asked, names) == ["Ada"]
    assert [each.max_tokens for each in model.asked] == [100, 200, 400]
    assert {each.messages for each in model.asked} == {asked.messages}


async def test_a_reply_cut_off_before_its_limit_is_for_the_caller_to_divide(store: Store) -> None:
    cut = ChatReply("1|Ada|person|a\n2|Bob|per", "length", output_tokens=50)
    model = Model(lambda request, n: cut)
    whole = replace(question(), max_tokens=100, divisible=True)
    divided = await pool(model, store).ask(whole, names)
    assert isinstance(divided, Rejected)
    assert divided.too_long
    assert len(model.asked) == 1


async def test_a_prompt_that_is_too_long_is_sent_once_and_a_limit_that_is_too_large_is_lowered(store: Store) -> None:
    def answer(request: ChatRequest, n: int) -> ChatReply:
        n_prompt = 500 if request.unit == "u" else 990
        if n_prompt + (request.max_tokens or 0) > 1000:
            raise ContextLengthExceeded("too many tokens", 1000, n_prompt)
        return reply("yes")

    model = Model(answer)
    assert await pool(model, store).ask(replace(question(), max_tokens=700), lambda r: r.text) == "yes"
    assert [each.max_tokens for each in model.asked] == [700, 484]
    refused = await pool(model, store).ask(replace(question("long"), unit="v", max_tokens=700), lambda r: r.text)
    assert isinstance(refused, Rejected)
    assert refused.too_long
    assert "window 1,000 tokens, prompt 990 tokens" in refused.reason
    assert len(model.asked) == 3


async def test_a_model_that_thinks_or_refuses_a_limit_gets_none_from_then_on(store: Store) -> None:
    def answer(request: ChatRequest, n: int) -> ChatReply:
        if request.unit == "w" and request.max_tokens:
            raise RequestRejected("max_tokens is too large: this model supports at most 10 completion tokens")
        return replace(reply("yes"), reasoning_tokens=4 if request.unit == "t" else 0)

    for first in "wt":
        model = Model(answer)
        asking = pool(model, store)
        for unit in (first, "u"):
            asked = replace(question(first + unit), unit=unit, max_tokens=100)
            assert await asking.ask(asked, lambda r: r.text) == "yes"
        assert model.asked[0].max_tokens == 100
        assert [each.max_tokens for each in model.asked[1:]] == [None] * (2 if first == "w" else 1)


async def test_after_the_last_attempt_the_unit_is_rejected(store: Store) -> None:
    model = Model(lambda request, n: reply(f"bad {n}"))

    def accept(answer: ChatReply) -> str:
        raise MalformedReply("never right")

    result = await pool(model, store, attempts=2).ask(question(), accept)
    assert isinstance(result, Rejected)
    assert (result.reason, result.attempts, result.reply) == ("never right", 2, "bad 2")
    assert "hello" in result.request


async def test_a_wrong_key_ends_the_run_and_a_wrong_request_only_its_unit(store: Store) -> None:
    def refuse(fatal: bool) -> Model:
        def answer(request: ChatRequest, n: int) -> ChatReply:
            raise RequestRejected("no", fatal=fatal)

        return Model(answer)

    with pytest.raises(RequestRejected):
        await pool(refuse(True), store).ask(question(), lambda r: r.text)
    assert isinstance(await pool(refuse(False), store).ask(question(), lambda r: r.text), Rejected)


async def test_a_call_that_was_sent_is_stored_although_its_task_gave_up(store: Store) -> None:
    sent, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Model):
        async def complete(self, request: ChatRequest) -> ChatReply:
            sent.set()
            await go_on.wait()
            return await super().complete(request)

    model = Slow(lambda request, n: reply("late"))
    asking = asyncio.ensure_future(pool(model, store).ask(question(), lambda r: r.text))
    await sent.wait()
    asking.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await asking
    again = Model(lambda request, n: reply("paid twice"))
    assert await pool(again, store).ask(question(), lambda r: r.text) == "late"


async def test_no_call_passes_the_spending_limit(store: Store) -> None:
    model = Model(lambda request, n: reply("yes"))
    limited = pool(model, store, max_usd=8230.0)  # a call may cost 11 + 8192 dollars, and costs 15
    assert await limited.ask(question("one"), lambda r: r.text) == "yes"
    assert await limited.ask(question("two"), lambda r: r.text) == "yes"
    with pytest.raises(BudgetReached, match=r"the limit of \$8230 was passed \(\$30"):
        await limited.ask(question("three"), lambda r: r.text)
    assert len(model.asked) == 2


async def test_a_reply_that_cannot_be_stored_is_not_used(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    asking = pool(Model(lambda request, n: reply("yes")), store)
    (tmp_path / "ledger").write_text("in the way")
    with pytest.raises(StoreError):
        await asking.ask(question(), lambda r: r.text)


async def test_a_stored_record_that_cannot_be_used_is_asked_for_once_and_superseded(store: Store) -> None:
    model = Model(lambda request, n: reply("yes"))
    asking = pool(model, store)
    key = ledger_key(question(), PricedModel("e", model), 0)
    damaged = Ledger(store)
    await damaged.put(key, {"text": 7, "usage": "none"})
    await damaged.close()
    assert await asking.ask(question(), lambda r: r.text) == "yes"
    assert await pool(model, store).ask(question(), lambda r: r.text) == "yes"
    assert len(model.asked) == 1
