"""Choice of the endpoint, retries, and giving up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from hirag_dist.errors import ModelError, ModelUnavailable, RateLimited, RequestRejected, TimedOut
from hirag_dist.llm.call import Call, CallContext, CallReply, finish_if_sent
from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy
from hirag_dist.llm.usage import UsageMeter
from tests.llm.limits.virtual_time import virtual_time


@dataclass(frozen=True)
class Endpoint:
    endpoint: str
    weight: float = 1.0
    name: str = "model"
    world: Any = None
    max_tokens: int = 10

    def max_use(self, call: Call[None, str]) -> tuple[int, float]:
        return self.max_tokens, 0.0

    async def send(self, call: Call[None, str]) -> CallReply[str]:
        return await self.world.send(self)

    async def ping(self, call: Call[None, str]) -> bool:
        return await self.world.ping(self)


class World:
    """Endpoints by a script, and a clock that moves with each sleep."""

    def __init__(self, script: Callable[[str, int], Any], patience: RetryPolicy, *endpoints: Endpoint) -> None:
        self.now = 0.0
        self.endpoints = [replace(each, world=self) for each in endpoints or (Endpoint("a"),)]
        self.meter = UsageMeter()
        coordinator = QuotaCoordinator(
            {each.endpoint: EndpointLimits(None, None, 50) for each in self.endpoints}, clock=self.clock
        )
        self.caller = RetriedCalls(RateLimiter(coordinator, clock=self.clock), patience, self.clock, self.sleep)
        self.asked: list[str] = []
        self.stored: list[tuple[str, int]] = []  # a reply, and how many calls hold or want a slot then
        self.pinged = 0
        self.ping_script: Callable[[int], Any] | None = None
        self._script = script

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    async def ping(self, target: Endpoint) -> bool:
        """Answer by the script of pings; without one there is no such request."""
        if self.ping_script is None:
            return False
        self.pinged += 1
        said = self.ping_script(self.pinged)
        if isinstance(said, Exception):
            self.now += 1.0
            raise said
        return True

    async def send(self, target: Endpoint) -> CallReply[str]:
        self.asked.append(target.endpoint)
        said = self._script(target.endpoint, len(self.asked))
        if isinstance(said, asyncio.Event):
            await said.wait()
            said = "late"
        if isinstance(said, Exception):
            self.now += 1.0
            raise said
        return CallReply(said, target.endpoint, 10, 0.0)

    async def call(self, last_resort: bool = True) -> tuple[str, str]:
        context = CallContext(self.meter)
        call = Call(None, self.endpoints, "extract", 10, 10, fails_over=not last_resort, context=context)

        async def stored() -> CallReply[str]:
            reply = await self.caller(call)
            self.stored.append((reply.value, self.caller.limiter.of(reply.endpoint).load()))
            return reply

        async with asyncio.timeout(10):
            reply = await finish_if_sent(call, stored())
        return reply.endpoint, reply.value


def down(endpoint: str) -> ModelUnavailable:
    return ModelUnavailable(f"{endpoint} is out of reach")


async def test_calls_are_shared_by_weight() -> None:
    gate = asyncio.Event()
    world = World(lambda endpoint, n: gate, RetryPolicy(), Endpoint("a", 3.0), Endpoint("b", 1.0))
    calls = [asyncio.ensure_future(world.call()) for _ in range(40)]
    for _ in range(400):
        await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*calls)
    assert Counter(world.asked) == {"a": 30, "b": 10}


async def test_an_endpoint_that_fails_is_replaced_and_comes_back() -> None:
    well = {"a": False}
    world = World(
        lambda endpoint, n: f"from {endpoint}" if well.get(endpoint, True) else down(endpoint),
        RetryPolicy(outage_timeout_s=60),
        Endpoint("a", 100.0),
        Endpoint("b", 1.0),
    )
    for _ in range(5):
        assert (await world.call())[0] == "b"
    assert Counter(world.asked)["a"] == 3  # then it was left alone
    well["a"] = True
    world.now += 100
    assert (await world.call())[0] == "a"


async def test_an_outage_is_waited_out_and_then_rises() -> None:
    world = World(lambda endpoint, n: "back" if n > 8 else down(endpoint), RetryPolicy(outage_timeout_s=300))
    assert await world.call() == ("a", "back")
    world = World(lambda endpoint, n: down(endpoint), RetryPolicy(outage_timeout_s=300))
    with pytest.raises(ModelUnavailable, match=r"a is out of reach; no endpoint answered for 300 s"):
        await world.call()
    assert 300 < world.now < 400
    assert world.meter.use("extract", "model", "a").failed == len(world.asked) > 5


async def test_calls_that_fail_together_are_one_outage() -> None:
    """However many were in flight or waited for their turn when it went down, it is tried again within seconds."""
    world = World(lambda endpoint, n: down(endpoint), RetryPolicy(outage_timeout_s=0))
    failures = await asyncio.gather(*(world.call() for _ in range(40)), return_exceptions=True)
    assert len(world.asked) == 40
    assert {type(each) for each in failures} == {ModelUnavailable}
    assert world.caller.pick(world.endpoints) is not None


async def test_another_model_is_left_the_call_sooner() -> None:
    world = World(lambda endpoint, n: down(endpoint), RetryPolicy(outage_timeout_s=600, failover_s=30))
    with pytest.raises(ModelUnavailable):
        await world.call(last_resort=False)
    assert 30 < world.now < 120
    with pytest.raises(ModelError):  # known to be out: the next call does not wait for it
        await world.call(last_resort=False)


async def test_an_endpoint_that_refuses_our_key_is_not_asked_again() -> None:
    def script(endpoint: str, n: int) -> object:
        return RequestRejected("401", fatal=True) if endpoint == "a" else "yes"

    world = World(script, RetryPolicy(), Endpoint("a", 9.0), Endpoint("b"))
    assert [(await world.call())[0] for _ in range(4)] == ["b"] * 4
    assert world.asked == ["a", "b", "b", "b", "b"]
    alone = World(script, RetryPolicy())
    for _ in range(2):
        with pytest.raises(RequestRejected, match="401"):
            await alone.call()
    assert alone.asked == ["a"]


@pytest.mark.parametrize(("failure", "tries"), [(TimedOut("no answer in time"), 3), (ModelUnavailable("500"), 10)])
async def test_a_request_that_alone_fails_every_time_is_given_up(failure: ModelUnavailable, tries: int) -> None:
    """It is not the endpoint."""

    def script(endpoint: str, n: int) -> object:
        world.caller.note_answered(world.endpoints[0])  # a reply to another request
        return failure

    world = World(script, RetryPolicy(attempts=3, outage_timeout_s=1e9))
    with pytest.raises(RequestRejected, match=f"no reply in {tries} tries while other requests had theirs"):
        await world.call()
    assert len(world.asked) == tries


async def test_a_hung_endpoint_is_an_outage_and_not_the_request_s_fault() -> None:
    world = World(lambda endpoint, n: TimedOut("no answer in time"), RetryPolicy(attempts=2, outage_timeout_s=50))
    with pytest.raises(TimedOut):
        await world.call()
    assert len(world.asked) > 2


async def test_429s_are_counted_and_are_no_failures() -> None:
    world = World(lambda endpoint, n: RateLimited("slow down", 0.0, "requests") if n < 6 else "yes", RetryPolicy())
    assert await world.call() == ("a", "yes")
    use = world.meter.use("extract", "model", "a")
    assert (use.rate_limited, use.failed) == (5, 0)


async def test_a_reply_is_stored_before_it_is_used_and_after_its_slot_is_free() -> None:
    world = World(lambda endpoint, n: "yes", RetryPolicy())
    await world.call()
    assert world.stored == [("yes", 0)]


async def test_whoever_gives_up_sends_no_call_that_waits() -> None:
    gate = asyncio.Event()
    world = World(lambda endpoint, n: gate, RetryPolicy(), Endpoint("a"))
    world.caller.limiter = RateLimiter(QuotaCoordinator({"a": EndpointLimits(None, None, 1)}))
    calls = [asyncio.ensure_future(world.call()) for _ in range(5)]
    while not world.asked:
        await asyncio.sleep(0)
    for each in calls:
        each.cancel()
    await asyncio.sleep(0)
    gate.set()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    await world.caller.close()
    assert all(isinstance(each, asyncio.CancelledError) for each in outcomes)
    assert (world.asked, world.stored) == (["a"], [("late", 0)])


@virtual_time
async def test_a_time_out_may_be_billed_and_counts_as_the_most_that_it_can_cost() -> None:
    failures = [TimedOut("no answer in time"), ModelUnavailable("503")]
    world = World(lambda endpoint, n: failures.pop(0) if failures else "yes", RetryPolicy())
    clock = asyncio.get_running_loop().time
    coordinator = QuotaCoordinator({"a": EndpointLimits(None, None, 5)}, max_tokens=100, clock=clock)
    world.caller = RetriedCalls(RateLimiter(coordinator, clock=clock), RetryPolicy(), clock)
    call = Call(None, [replace(world.endpoints[0], max_tokens=40)], "extract", 10, 40)
    await world.caller(call)
    await asyncio.sleep(5)  # until the use is reported
    await world.caller.close()
    assert coordinator.spent() == (40 + 10, 0.0)
    assert world.asked == ["a"] * 3


async def test_an_outage_is_probed_with_one_token_and_the_call_goes_once_it_is_over() -> None:
    """Three failures open the circuit. The fourth request would be a whole extraction: it waits for a ping."""
    world = World(lambda name, number: ModelUnavailable("503") if number <= 3 else "fine", RetryPolicy())
    world.ping_script = lambda number: ModelUnavailable("503") if number <= 2 else None
    assert (await world.call()) == ("a", "fine")
    assert len(world.asked) == 4
    assert world.pinged == 3
    assert world.meter.use("probe", "model", "a").failed == 2
