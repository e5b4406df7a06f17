"""Units asked together: each is read by itself, what failed is asked again alone, and replies are kept by unit.

So another pack, or a run that was killed, finds them and counts what they used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import pytest

from hirag_dist.core.prompts.reply_parsing import MalformedReply
from hirag_dist.errors import RequestRejected
from hirag_dist.execution.stage import Services
from hirag_dist.indexing.stages.packed_calls import PackableUnit, PackingOptions, ask_pack, ask_packed
from hirag_dist.llm.call import CallContext, PricedModel
from hirag_dist.llm.chat import EndpointPool
from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy
from hirag_dist.llm.usage import ModelUsage, UsageMeter
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatReply, ChatRequest, Message, Rejected

T = TypeVar("T")
SYSTEM = Message("system", "Task: summarise-pack")
THREE = PackingOptions(1000, 3)
ALONE = PackingOptions(0)
Say = Callable[[tuple[str, ...]], str]


@dataclass
class Chat:
    """A pool of one try; `say` gives the text of a reply."""

    say: Callable[[ChatRequest], ChatReply | str]
    asked: list[tuple[str, ...]] = field(default_factory=list)
    unit_replies: None = None

    async def ask(self, request: ChatRequest, accept: Callable[[ChatReply], T]) -> T | Rejected:
        self.asked.append(request.packed or (request.unit,))
        said = self.say(request)
        reply = ChatReply(said) if isinstance(said, str) else said
        try:
            return accept(reply)
        except MalformedReply as refusal:
            return Rejected(request.unit, str(refusal), 1)


def unit(name: str, content: str = "") -> PackableUnit[str]:
    """A unit whose good reply names it."""

    def parse(reply: ChatReply) -> str:
        if name not in reply.text:
            raise MalformedReply(f"{name} is not there")
        return reply.text

    messages = (Message("system", "alone"), Message("user", content or name))
    return PackableUnit(ChatRequest("summarise", messages, unit=name), parse)


async def ask(chat: Chat, units: list[PackableUnit[str]]) -> list[str | Rejected]:
    services = Services(chat, None, None, None, len)  # type: ignore[arg-type]
    return await ask_packed(units, PackingOptions(1000, 8), "summarise", SYSTEM, services)


def each(names: tuple[str, ...]) -> str:
    return "\n".join(f"unit<|>{at}\n{name}" for at, name in enumerate(names, 1)) if len(names) > 1 else names[0]


def told(request: ChatRequest) -> str:
    return each(request.packed) if request.packed else f"{request.unit} alone"


@pytest.mark.parametrize("useless", [ChatReply(""), ChatReply("x", finish_reason="content_filter"), ChatReply("Hm.")])
async def test_a_useless_reply_is_not_asked_for_again_as_a_pack(useless: ChatReply) -> None:
    chat = Chat(lambda request: useless if request.packed else told(request))
    assert await ask(chat, [*map(unit, "abc")]) == ["a alone", "b alone", "c alone"]
    assert chat.asked == [("a", "b", "c"), ("a",), ("b",), ("c",)]


async def test_a_unit_that_fails_alone_too_is_a_dead_letter_of_its_own() -> None:
    chat = Chat(lambda request: told(request).replace("b", "?"))
    result = await ask(chat, [*map(unit, "abc")])
    assert result[0::2] == ["a", "c"]
    assert isinstance(result[1], Rejected)
    assert (result[1].unit, result[1].reason) == ("b", "b is not there")


async def test_a_pack_that_is_too_long_is_halved_and_then_its_unit_is_divided() -> None:
    def part(name: str) -> PackableUnit[str]:
        return replace(
            unit(name), divided=lambda: [part(half) for half in name] if len(name) > 1 else [], joined="".join
        )

    class Small(Chat):
        """A pool whose window has room for two letters."""

        async def ask(self, request: ChatRequest, accept: Callable[[ChatReply], T]) -> T | Rejected:
            if sum(map(len, request.packed or (request.unit,))) <= 2 and request.unit != "x":
                return await super().ask(request, accept)
            self.asked.append(request.packed or (request.unit,))
            return Rejected(request.unit, "too long", 1, too_long=True)

    chat = Small(lambda request: told(request).removesuffix(" alone"))
    *found, dead = await ask(chat, [part(name) for name in ("a", "b", "cde", "x")])
    assert found == ["a", "b", "cde"]
    assert isinstance(dead, Rejected)
    assert chat.asked[:3] == [("a", "b", "cde", "x"), ("a", "b"), ("cde", "x")]


def without(bad: str) -> Say:
    """Reply to every unit but those, in packs; each has its reply when it is asked alone."""
    return lambda names: each(tuple("?" if name in bad and len(names) > 1 else name for name in names))


class Model:
    """A paid model. The names of the units that each call is about are in `asked`."""

    rate_limits = None

    def __init__(self, say: Say = each, name: str = "model") -> None:
        self.name = name
        self.say = say
        self.asked: list[str] = []
        self.held: dict[str, asyncio.Event] = {}

    async def complete(self, request: ChatRequest) -> ChatReply:
        names = tuple(unit.split("-")[0] for unit in request.packed or (request.unit,))
        self.asked.append("".join(names))
        if gate := self.held.get(names[0]):
            await gate.wait()
            raise RequestRejected("the process ends here", fatal=True)
        size = sum(len(message.content) for message in request.messages)
        return ChatReply(self.say(names), "stop", self.name, 7 * size + 3, 2 * size + 1, 11 * len(names) + 2)

    async def close(self) -> None:
        pass


def unit_of(name: str) -> PackableUnit[str]:
    return unit(name, name * (1000 * 4 if name.isupper() else 10))  # one in capitals shares no call


@dataclass
class Bench:
    """Runs of a worker on one ledger; each has its own pool, as a process has."""

    store: Store
    model: Model = field(default_factory=Model)
    models: tuple[PricedModel, ...] = ()

    async def run(
        self, names: str, packing: PackingOptions | None = THREE
    ) -> tuple[list[str | Rejected], ModelUsage, list[str]]:
        """Return the results, the use that was counted, and the calls that were sent."""
        priced = PricedModel("e", self.model, price=(0.1, 0.03, 0.7))  # type: ignore[arg-type]
        meter, before = UsageMeter(), len(self.model.asked)
        units = [unit_of(name) for name in names]
        with closing(RateLimiter(QuotaCoordinator({"e": EndpointLimits(None, None, 8)}))) as limiter:
            calls = RetriedCalls(limiter, RetryPolicy(2, 0.0))
            pool = EndpointPool({"summarise": self.models or [priced]}, Ledger(self.store), calls, len)
            services = Services(pool.with_context(CallContext(meter)), None, None, None, len)  # type: ignore[arg-type]
            if packing is None:
                results = await ask_pack(units, "summarise", SYSTEM, services, packing=THREE)
            else:
                results = await ask_packed(units, packing, "summarise", SYSTEM, services)
        total = ModelUsage()
        for use in meter.uses.values():
            total.add(use)
        return results, total, self.model.asked[before:]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(Store(str(tmp_path / "one")))


def paid(use: ModelUsage) -> dict[str, float]:
    """The part of a use that is the same whether its calls were sent or found."""
    found = {name: value for name, value in asdict(use).items() if name != "ledger_hits" and "sent_" not in name}
    return found | {"cost_usd": round(use.cost_usd, 12)}  # its last bits depend on the order in which replies came


async def test_a_pack_of_other_units_finds_the_replies_and_what_they_used(bench: Bench) -> None:
    results, first, asked = await bench.run("abcdef")
    assert (results, asked) == (list("abcdef"), ["abc", "def"])
    for other in (PackingOptions(1000, 2), PackingOptions(1000, 6), None):
        results, use, asked = await bench.run("abcdef", other)
        assert (results, asked) == (list("abcdef"), [])
        assert paid(use) == paid(first)
        assert (use.calls, use.ledger_hits, use.sent_tokens) == (2, 2, 0)


async def test_only_what_is_not_there_is_packed(bench: Bench) -> None:
    _, first, _ = await bench.run("abc")
    results, use, asked = await bench.run("xaybzcw")
    assert (results, asked) == (list("xaybzcw"), ["xyz", "w"])
    assert (use.calls, use.ledger_hits) == (3, 1)
    _, rest, _ = await Bench(Store(bench.store.uri + "-other")).run("xyzw")
    assert use.input_tokens == first.input_tokens + rest.input_tokens
    _, again, asked = await bench.run("xaybzcw")
    assert (asked, paid(again)) == ([], paid(use))


async def test_without_packing_nothing_is_used_that_a_model_said_while_it_saw_other_units(bench: Bench) -> None:
    await bench.run("abc")
    results, use, asked = await bench.run("abc", ALONE)
    assert (results, asked, use.ledger_hits) == (list("abc"), ["a", "b", "c"], 0)
    _, again, asked = await bench.run("abc", ALONE)
    assert (asked, paid(again)) == ([], paid(use))


@pytest.mark.parametrize("bad", ["bc", "bde"])
async def test_what_a_pack_failed_for_is_found_again_and_counted(bench: Bench, bad: str) -> None:
    await bench.run("e", ALONE)
    bench.model.say = without(bad)
    results, first, asked = await bench.run("abcdef")
    failed = [name for name in bad if name != "e"]
    assert (results, sorted(asked)) == (list("abcdef"), sorted(["abc", "df", *failed]))
    _, again, asked = await bench.run("abcdef")
    assert (asked, paid(again)) == ([], paid(first))
    results, other, asked = await bench.run("abcdef", PackingOptions(1000, 4))
    assert (results, asked) == (list("abcdef"), [])
    assert other.input_tokens <= first.input_tokens


@pytest.mark.parametrize(("before", "unreadable"), [("", "cd"), ("ag", "bc")])
async def test_a_killed_run_goes_on_with_the_same_packs(bench: Bench, before: str, unreadable: str) -> None:
    """Capitals are too large to share a call: once their pack is done, their neighbours would fit together."""
    names = "abXcdYefg"
    other = Bench(Store(bench.store.uri + "-other"))
    for each_bench in (bench, other):
        await each_bench.run(before, ALONE) if before else None
        each_bench.model.say = without(unreadable)
    expected, undisturbed, _ = await other.run(names)
    bench.model.held["b" if before == "ag" else "a"] = gate = asyncio.Event()
    ended = asyncio.ensure_future(bench.run(names))
    held = "b" if before == "ag" else "ab"
    sent = [call for call in other.model.asked if call != "b" or held == "b"]  # alone after its pack
    while len(bench.model.asked) < len(sent):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)  # the others' replies and parts are stored
    gate.set()
    with pytest.raises(RequestRejected):
        await ended
    bench.model.held.clear()
    results, use, _ = await bench.run(names)
    assert results == expected
    assert paid(use) == paid(undisturbed)
    assert sorted(bench.model.asked) == sorted([*other.model.asked, held])


async def test_a_reply_that_was_refused_is_not_asked_for_again_in_a_pack(bench: Bench) -> None:
    tries = iter("?b")
    bench.model.say = lambda names: next(tries) if names == ("b",) else each(names)
    results, _, asked = await bench.run("ab", ALONE)
    assert (results, asked) == (["a", "b"], ["a", "b", "b"])
    results, use, asked = await bench.run("abc")
    assert (results, asked, use.rejected) == (["a", "b", "c"], ["c"], 1)


@pytest.mark.parametrize("keeps", ["both", "second"])
async def test_a_role_with_several_models_finds_what_any_of_them_said(bench: Bench, keeps: str) -> None:
    first, second = (PricedModel("e", Model(name=name)) for name in ("one", "two"))  # type: ignore[arg-type]
    bench.models = (first, second) if keeps == "both" else (second,)
    names = "abcdefghijklmnopqr"
    results, use, _ = await bench.run(names)
    bench.models = (first, second)
    n_asked = len(first.model.asked) + len(second.model.asked)  # type: ignore[attr-defined]
    again, found, _ = await bench.run(names, PackingOptions(1000, 5))
    assert n_asked == len(first.model.asked) + len(second.model.asked) == 6  # type: ignore[attr-defined]
    assert again == results == list(names)
    assert paid(found) == paid(use)


async def test_a_pack_that_the_endpoint_refuses_is_not_sent_again(bench: Bench) -> None:
    """Such a call leaves no reply; those to its units alone are there."""

    def refuse(names: tuple[str, ...]) -> str:
        if "b" in names and len(names) > 1:
            raise RequestRejected("the prompt is against the rules")
        return each(names)

    bench.model.say = refuse
    results, use, asked = await bench.run("abcdef")
    assert (results, sorted(asked)) == (list("abcdef"), ["a", "abc", "b", "c", "def"])
    results, again, asked = await bench.run("abcdef")
    assert (results, asked, paid(again)) == (list("abcdef"), [], paid(use))
