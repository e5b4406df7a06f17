"""The pool: a reply is paid once, stored before use, asked again when refused, and never lost."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from hirag_dist.core.prompts.reply_parsing import parse_extraction
from hirag_dist.core.prompts.reply_validation import CutOffReply, MalformedReply
from hirag_dist.errors import BudgetReached, ContextLengthExceeded, ModelUnavailable, RequestRejected, StoreError
from hirag_dist.indexing.publish import stage_usage
from hirag_dist.llm.call import MIN_UNITS, CallContext, NotSent, PricedModel, SystematicRefusals, ledger_key
from hirag_dist.llm.capabilities import probe_structured_output
from hirag_dist.llm.chat import EndpointPool
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.usage import UsageMeter, dollars, total_cost, usage_rows
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatReply, ChatRequest, Rejected
from tests.ledger_sizes import ledger_size
from tests.llm.calls import Hold, Model, at_once, calls, named, question, text_of


def reply(text: str) -> ChatReply:
    return ChatReply(text, input_tokens=10, output_tokens=5)


def pool(model: Any, store: Any, attempts: int = 3, at_a_time: int = 100, **limits: float) -> EndpointPool:
    """A pool of one model, or of the priced models of a tuple."""
    models = model if isinstance(model, tuple) else (PricedModel("e", model, price=(1e6, 1e6, 1e6)),)
    ledger = Ledger(store) if isinstance(store, Store) else store
    caller = calls(attempts, at_a_time=at_a_time, **limits)
    return EndpointPool(dict.fromkeys(("extract", "report"), models), ledger, caller, lambda text: len(text.split()))


def refuse(reply: ChatReply) -> str:
    raise MalformedReply("no record in it")


async def test_a_reply_is_paid_once_across_runs(store: Store) -> None:
    model = Model(lambda request, n: reply("yes"))
    first = await pool(model, store).ask(question(), text_of)
    meter = UsageMeter()
    second = await pool(model, store).with_context(CallContext(meter)).ask(question(), text_of)
    assert (first, second, len(model.requests)) == ("yes", "yes", 1)
    use = next(iter(meter.uses.values()))
    assert (use.calls, use.ledger_hits, use.input_tokens, use.sent_tokens) == (1, 1, 10, 0)


async def test_built_in_models_leave_nothing_in_the_ledger(store: Store) -> None:
    model = named("builtin")
    computing = pool((PricedModel("no endpoint", model, paid=False),), store)
    assert [await computing.ask(question(), text_of) for _ in range(2)] == ["builtin"] * 2
    assert (len(model.requests), ledger_size(store).records) == (2, 0)


async def test_a_call_that_was_sent_is_stored_although_its_task_gave_up(store: Store) -> None:
    hold = Hold()
    model = Model(lambda request, n: reply("late"), hold=hold)
    asking = asyncio.ensure_future(pool(model, store).ask(question(), text_of))
    await hold.arrived.wait()
    asking.cancel()
    await asyncio.sleep(0)
    hold.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await asking
    again = Model(lambda request, n: reply("paid twice"))
    assert await pool(again, store).ask(question(), text_of) == "late"


async def test_a_reply_that_cannot_be_stored_is_not_used(store: Store) -> None:
    asking = pool(Model(lambda request, n: reply("yes")), store)
    store.write_bytes("ledger", b"in the way")
    with pytest.raises(StoreError):
        await asking.ask(question(), text_of)


async def test_a_stored_record_that_cannot_be_used_is_asked_for_once_and_superseded(store: Store) -> None:
    model = Model(lambda request, n: reply("yes"))
    asking = pool(model, store)
    damaged = Ledger(store)
    await damaged.put(ledger_key(question(), PricedModel("e", model), 0), {"text": 7, "usage": "none"})
    await damaged.close()
    assert await asking.ask(question(), text_of) == "yes"
    assert await pool(model, store).ask(question(), text_of) == "yes"
    assert len(model.requests) == 1


async def test_of_equal_requests_never_two_are_on_their_way(store: Store) -> None:
    """The first fails; those that waited for it go one after another."""
    present = most = 0

    async def count(request: ChatRequest) -> None:
        nonlocal present, most
        present += 1
        most = max(most, present)
        await asyncio.sleep(0)
        present -= 1

    def answer(request: ChatRequest, n: int) -> ChatReply:
        if n == 1:
            raise RequestRejected("not this one")
        return reply("m")

    asking = pool(Model(answer, hold=count), store)
    outcomes = await asyncio.gather(*(asking.ask(question(), text_of) for _ in range(6)))
    assert most == 1
    assert sum(each == "m" for each in outcomes) == 5


# Choice of the model, keys and bills


async def test_the_request_alone_chooses_among_models_by_their_weights() -> None:
    models = PricedModel("e", named("a"), weight=3.0), PricedModel("e", named("b"))
    shared = pool(models, None)
    answers = [await shared.ask(question(number), text_of) for number in range(400)]
    counts = Counter(answers)
    assert set(counts) == {"a", "b"}
    assert 60 <= counts["b"] <= 140  # a quarter
    assert [pool(models, None).model_name(question(number)) for number in range(400)] == answers


async def test_every_attempt_stays_with_the_model_of_the_first() -> None:
    models = [named("a"), named("b")]
    shared = pool(tuple(PricedModel("e", each) for each in models), None, attempts=2)
    for number in range(20):
        for each in models:
            each.requests.clear()
        await shared.ask(question(number), refuse)
        assert sorted(len(each.requests) for each in models) == [0, 2]


def test_the_ledger_key_depends_on_all_that_decides_the_reply_and_on_nothing_else() -> None:
    chosen = PricedModel("e", named("m"), settings="t=0")
    first = question()
    key = ledger_key(first, chosen, 0)
    same = [
        ledger_key(replace(first, role="report", unit="other", round=3), chosen, 0),
        ledger_key(replace(first, max_tokens=5, types=("person",), max_items=16), chosen, 0),
        ledger_key(first, replace(chosen, endpoint="f", price=(1.0, 2.0, 3.0)), 0),
    ]
    other = [
        ledger_key(question(1), chosen, 0),
        ledger_key(replace(first, messages=(replace(first.messages[0], role="system"),)), chosen, 0),
        ledger_key(replace(first, form="extract-graph"), chosen, 0),
        ledger_key(replace(first, form="map-answer", max_tokens=5), chosen, 0),
        ledger_key(first, replace(chosen, settings="t=1"), 0),
        ledger_key(first, replace(chosen, model=named("n")), 0),
        ledger_key(first, chosen, 1),
    ]
    assert set(same) == {key}
    assert len({key, *other}) == 1 + len(other)


async def test_costs_are_counted_with_the_cache_price(store: Store) -> None:
    priced = PricedModel("e", named("m"), price=(1e6, 0.5e6, 2e6))
    meter = UsageMeter()
    await pool((priced,), store).with_context(CallContext(meter)).ask(question(), text_of)
    use = next(iter(meter.uses.values()))
    assert use.cost_usd == use.sent_cost_usd == 6 * 1.0 + 4 * 0.5 + 5 * 2.0
    back = UsageMeter.from_rows(meter.rows())
    back.add(meter)
    assert back.use("extract", "m", "e").calls == 2


def test_a_cost_that_is_not_known_is_unknown_everywhere() -> None:
    meter = UsageMeter()
    said = ChatReply("", input_tokens=1000, output_tokens=100)
    for name, price in (("priced", (2.0, 2.0, 8.0)), ("unpriced", None)):
        model = PricedModel(name, named("m"), price=price)
        model.count(meter, "answer", said, model.cost(said))
    assert meter.spent() == (2200, 0.0028), "a limit is of what is known"
    assert meter.sent_sums()["usd"] is None
    rows = json.loads(json.dumps(meter.rows(), allow_nan=False))
    assert [row["cost_usd"] for row in rows] == [0.0028, None]
    again = UsageMeter.from_rows(rows)
    assert math.isnan(again.uses[rows[1]["role"], rows[1]["model"], "unpriced"].cost_usd)
    written = usage_rows(stage_usage({"answers": again}))
    assert [row["cost_usd"] for row in written] == [0.0028, None]
    assert total_cost(row["cost_usd"] for row in written) is None
    assert dollars(total_cost([])) == "$0.00"


async def test_the_most_that_a_reply_can_have_is_its_endpoint_s_limit(store: Store) -> None:
    """A call of six words and a reply of at most 100 tokens fits a limit of 130; one of 8192 would not."""
    small = PricedModel("e", named("m"), max_reply_tokens=100)
    assert await pool((small,), store, max_tokens=130).ask(question(), text_of) == "m"
    with pytest.raises(BudgetReached, match="may use 82"):
        await pool((PricedModel("e", named("n")),), store, max_tokens=130).ask(question(), text_of)


async def test_parts_of_a_pack_are_found_by_unit_and_cost_what_the_pack_did(store: Store) -> None:
    priced = (PricedModel("e", named("m")),)
    asked = pool(priced, store)
    parts = [question(1), question(2), question(3)]
    assert await asked.unit_replies.find(parts) == [None] * 3
    pack = question(123)
    whole = await asked.ask(pack, lambda reply: reply)
    assert isinstance(whole, ChatReply)
    await asked.unit_replies.store(pack, [(parts[0], "first"), (parts[1], "second")])
    meter = UsageMeter()
    found_units = pool(priced, store).with_context(CallContext(meter)).unit_replies
    first, second, none = await found_units.find(parts)
    assert none is None
    assert (first.reply.text, second.reply.text) == ("first", "second")
    for kind in ("input_tokens", "cached_tokens", "output_tokens"):
        assert getattr(first.reply, kind) + getattr(second.reply, kind) == getattr(whole, kind)
    found_units.count("extract", [first, second, first])
    use = meter.use("extract", "m", "e")
    assert (use.calls, use.ledger_hits, use.input_tokens) == (1, 1, whole.input_tokens), "one pack, counted once"


class Streaming(Model):
    """Fails after some letters of its name."""

    n_letters = 0

    async def stream(self, request: ChatRequest) -> AsyncIterator[str | ChatReply]:  # type: ignore[override]
        self.requests.append(request)
        for letter in self.name[: self.n_letters]:
            yield letter
        raise ModelUnavailable("gone")


@pytest.mark.parametrize("n_letters", [0, 2])
async def test_a_stream_moves_to_another_model_until_it_has_begun(n_letters: int) -> None:
    broken, sound = Streaming(lambda request, n: reply(""), "broken"), named("sound")
    broken.n_letters = n_letters
    asked = pool((PricedModel("e", broken, weight=1e9), PricedModel("e", sound, weight=1e-9)), None)
    pieces: list[str] = []
    try:
        async for piece in asked.stream(question()):
            pieces.append(piece.text if isinstance(piece, ChatReply) else piece)
    except ModelUnavailable:
        pass
    assert "".join(pieces) == ("br" if n_letters else "soundsound")
    assert (len(broken.requests), len(sound.requests)) == (1, 0 if n_letters else 1)


# Replies that are refused or cut off


async def test_a_refused_reply_is_asked_again_with_the_reason_and_without_the_reply(store: Store) -> None:
    model = Model(lambda request, n: reply("bad" if n == 1 else "good"))

    def accept(answer: ChatReply) -> str:
        return refuse(answer) if answer.text == "bad" else answer.text

    assert await pool(model, store).ask(question(), accept) == "good"
    (message,) = model.requests[1].messages
    assert message.content.startswith("question hello")
    assert "no record in it" in message.content
    assert "bad" not in message.content
    assert [each.temperature for each in model.requests] == [None, 0.7]
    assert await pool(model, store).ask(question(), accept) == "good"
    assert len(model.requests) == 2


async def test_after_the_last_attempt_the_unit_is_rejected(store: Store) -> None:
    result = await pool(Model(lambda request, n: reply(f"bad {n}")), store, attempts=2).ask(question(), refuse)
    assert isinstance(result, Rejected)
    assert (result.reason, result.attempts, result.reply) == ("no record in it", 2, "bad 2")
    assert "hello" in result.request


LOOP = "".join(f"{at}|Ada|person|A poet.\n" for at in range(20))
CUT_OFF = "1|Ada|person|a\n2|Bob|per"


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
    sent = [(each.temperature, each.frequency_penalty, each.max_tokens, each.messages) for each in model.requests]
    same = asked.messages
    assert sent == [(None, None, 100, same), (0.7, 0.5, 100, same), (0.7, None, 100, same)]


async def test_a_reply_that_is_cut_off_gets_twice_the_limit_and_at_last_what_is_complete_is_kept(store: Store) -> None:
    model = Model(lambda request, n: ChatReply(CUT_OFF, "length"))
    asked = replace(question(), max_tokens=100)
    for _ in range(2):  # the second time from stored replies
        assert await pool(model, store).ask(asked, names) == ["Ada"]
    assert [each.max_tokens for each in model.requests] == [100, 200, 400]
    assert {each.messages for each in model.requests} == {asked.messages}


async def test_a_prompt_that_is_too_long_is_sent_once_and_a_limit_that_is_too_large_is_lowered(store: Store) -> None:
    def answer(request: ChatRequest, n: int) -> ChatReply:
        n_prompt = 500 if request.unit == "u" else 990
        if n_prompt + (request.max_tokens or 0) > 1000:
            raise ContextLengthExceeded("too many tokens", 1000, n_prompt)
        return reply("yes")

    model = Model(answer)
    assert await pool(model, store).ask(replace(question(), max_tokens=700), text_of) == "yes"
    assert [each.max_tokens for each in model.requests] == [700, 484]
    refused = await pool(model, store).ask(replace(question("long"), unit="v", max_tokens=700), text_of)
    assert isinstance(refused, Rejected)
    assert refused.too_long
    assert "window 1,000 tokens, prompt 990 tokens" in refused.reason
    assert len(model.requests) == 3


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
            assert await asking.ask(asked, text_of) == "yes"
        assert model.requests[0].max_tokens == 100
        assert [each.max_tokens for each in model.requests[1:]] == [None] * (2 if first == "w" else 1)


# A role whose replies are all refused is not asked about every unit

ATTEMPTS, CONCURRENCY, UNITS = 3, 4, 100


class Replies:
    """Stores replies at once: a real store makes them durable in groups, and requests go out meanwhile."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] = {}

    async def get(self, key: str) -> Any:
        return self.stored.get(key)

    async def put(self, key: str, record: Any, replaced: set[str]) -> None:
        self.stored[key] = record


def echo() -> Model:
    """A model that replies with the last word of the first message."""
    return Model(lambda request, n: ChatReply(request.messages[0].content.split()[-1]))


def few_at_a_time(model: Model, ledger: Any) -> EndpointPool:
    return pool(model, ledger, ATTEMPTS, at_a_time=CONCURRENCY)


def accept_good(reply: ChatReply) -> str:
    return reply.text if reply.text == "good" else refuse(reply)


async def ask_all(chat: EndpointPool, words: list[str]) -> list[str | Rejected]:
    units = [replace(question(f"{number} {word}"), unit=str(number)) for number, word in enumerate(words)]
    return await asyncio.gather(*(chat.ask(unit, accept_good) for unit in units))


async def test_calls_stop_when_all_units_are_refused() -> None:
    model = echo()
    chat = few_at_a_time(model, Replies())
    results = await ask_all(chat, ["bad"] * UNITS)
    assert all(isinstance(each, Rejected) for each in results)  # each is recorded, so that each can be asked again
    rejected = [each for each in results if isinstance(each, Rejected)]
    n_calls = len(model.requests)
    assert MIN_UNITS * ATTEMPTS <= n_calls <= MIN_UNITS * ATTEMPTS + CONCURRENCY < UNITS
    assert sum(each.attempts for each in rejected) == n_calls
    unsent = [each for each in rejected if not each.attempts]
    assert len(unsent) > UNITS / 2
    assert all(
        "units of role extract were all refused; the last reason: no record in it" in each.reason for each in unsent
    )
    assert await chat.ask(replace(question("good"), role="report"), accept_good) == "good"  # another role goes on


async def test_one_accepted_reply_keeps_the_calls_going() -> None:
    model = echo()
    results = await ask_all(few_at_a_time(model, Replies()), ["good", *["bad"] * (UNITS - 1)])
    assert results[0] == "good"
    assert len(model.requests) == 1 + ATTEMPTS * (UNITS - 1)


@pytest.mark.parametrize("divisible", [False, True])
async def test_units_whose_reply_is_kept_in_part_or_that_are_divided_hold_up_no_other(divisible: bool) -> None:
    def accept_whole(reply: ChatReply) -> str:
        if reply.finish_reason == "length":
            raise CutOffReply("cut off")
        return reply.text

    model = Model(lambda request, n: ChatReply(CUT_OFF, "length", output_tokens=10))
    chat = few_at_a_time(model, Replies())
    asked = replace(question(), divisible=divisible, max_tokens=1000)
    async with asyncio.timeout(60):  # it would wait for ever
        results = await asyncio.gather(
            *(chat.ask(replace(asked, messages=question(number).messages), accept_whole) for number in range(UNITS))
        )
    whole = [each.too_long if isinstance(each, Rejected) else each for each in results]
    assert set(whole) == ({True} if divisible else {CUT_OFF.partition("\n")[0]})
    if divisible:
        assert len(model.requests) == UNITS, "what is cut off before its limit is for the caller to divide"


@pytest.mark.parametrize(("seconds", "n_units"), [(59.0, 8), (60.0, 3)])
def test_a_slow_model_is_stopped_after_fewer_units(seconds: float, n_units: int) -> None:
    now = 0.0
    refusals = SystematicRefusals(lambda: now)
    refusals.note_refused("extract", "0", "empty")
    now = seconds
    for number in range(n_units):
        refusals.check("extract")
        refusals.note_refused("extract", str(number), "empty", final=True)
    with pytest.raises(NotSent):
        refusals.check("extract")
    refusals.note_accepted("extract")
    refusals.check("extract")


async def test_stored_refusals_do_not_stop_new_calls_and_a_retry_asks_what_was_not_sent() -> None:
    ledger = Replies()
    await ask_all(few_at_a_time(echo(), ledger), ["bad"] * MIN_UNITS)
    model = echo()
    results = await ask_all(few_at_a_time(model, ledger), ["bad"] * MIN_UNITS + ["good"] * 3)
    assert results[-3:] == ["good"] * 3
    assert len(model.requests) == 3
    await ask_all(few_at_a_time(echo(), ledger), ["bad"] * UNITS)
    mended = Model(lambda request, n: ChatReply("good"))
    chat = few_at_a_time(mended, ledger).with_context(CallContext(is_retry=True))
    assert set(await ask_all(chat, ["bad"] * UNITS)) == {"good"}


# The probe of structured outputs


class Probed:
    name = "m"

    def __init__(self, n_failures: int) -> None:
        self.probed: ChatReply | None = None
        self.refused_keywords: frozenset[str] = frozenset()
        self.n_asked = 0
        self._n_failures = n_failures

    async def supports_forms(self) -> bool:
        self.n_asked += 1
        self.refused_keywords = frozenset({"maxLength"})
        if self.n_asked <= self._n_failures:
            raise ModelUnavailable("503")
        self.probed = ChatReply('{"ok": true}', input_tokens=30, output_tokens=5)
        return True


async def test_a_model_is_probed_once_and_waited_for(store: Store) -> None:
    model = Probed(n_failures=2)
    target = PricedModel("e", model, price=(1e6, 1e6, 1e6))  # type: ignore[arg-type]
    meter = UsageMeter()
    for number in range(2):
        caller, ledger = calls(outage_timeout_s=600.0, sleep=at_once), Ledger(store)
        assert await probe_structured_output(target, ledger, caller, meter) is True
        await caller.close()
        await ledger.close()
        use = meter.use("probe", "m", "e")
        assert (use.calls, use.ledger_hits, use.sent_cost_usd, use.failed) == (number + 1, number, 35.0, 2)
        assert model.refused_keywords == {"maxLength"}, "found by the probe, then in the ledger"
        model.refused_keywords = frozenset()
    assert model.n_asked == 3


@pytest.mark.parametrize("limits", [{"max_tokens": 1000}, {"max_usd": 0.9}])
async def test_a_probe_that_could_pass_the_spending_limit_is_not_sent(limits: dict[str, Any]) -> None:
    model = Probed(n_failures=0)
    target = PricedModel("e", model, price=(0.0, 0.0, 1000.0), max_reply_tokens=1000)  # type: ignore[arg-type]
    with pytest.raises(BudgetReached):
        await probe_structured_output(target, None, calls(**limits), UsageMeter())
    assert model.n_asked == 0
    enough = {name: 2 * most for name, most in limits.items()}
    assert await probe_structured_output(target, None, calls(**enough), UsageMeter())
