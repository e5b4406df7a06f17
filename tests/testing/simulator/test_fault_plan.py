"""Draws: shares, repeatability, bounds; storms; the prompt cache; remembered replies."""

from __future__ import annotations

from collections import Counter

import pytest

from hirag_dist.testing.simulator import SimulatorOptions
from hirag_dist.testing.simulator.fault_plan import EMBEDDING_FAULTS, expires, plan_of
from hirag_dist.testing.simulator.limits import LimitExceeded, SimulatedLimits
from hirag_dist.testing.simulator.prompt_cache import TOKEN_BYTES, PromptCache, prefixes_of
from hirag_dist.testing.simulator.rate_limit_storms import Storms
from hirag_dist.testing.simulator.stats import CallCounts, ReplyMemory, digest, total

RATES = {"fail_rate": 0.1, "hang_rate": 0.05, "drop_rate": 0.15, "malformed_rate": 0.2, "truncate_rate": 0.1}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_each_fault_has_its_share_and_repeats() -> None:
    options = SimulatorOptions(seed=3, **RATES)  # type: ignore[arg-type]
    plans = [plan_of(options, f"r{i}", 0) for i in range(4000)]
    shares = Counter(plan.fault for plan in plans)
    for name, rate in RATES.items():
        assert shares[name.removesuffix("_rate")] / 4000 == pytest.approx(rate, rel=0.15)
    assert plans == [plan_of(options, f"r{i}", 0) for i in range(4000)]
    assert plans != [plan_of(SimulatorOptions(seed=4, **RATES), f"r{i}", 0) for i in range(4000)]  # type: ignore[arg-type]


def test_attempts_are_drawn_apart() -> None:
    options = SimulatorOptions(fail_rate=0.5)
    again = Counter((plan_of(options, f"r{i}", 0).fault, plan_of(options, f"r{i}", 1).fault) for i in range(2000))
    assert all(count / 2000 == pytest.approx(0.25, rel=0.2) for count in again.values())
    assert len(again) == 4


def test_a_kind_that_a_call_cannot_have_is_none() -> None:
    options = SimulatorOptions(malformed_rate=0.5, hang_rate=0.5)
    both = [(plan_of(options, f"r{i}", 0).fault, plan_of(options, f"r{i}", 0, EMBEDDING_FAULTS)) for i in range(100)]
    assert {chat for chat, _ in both} == {"malformed", "hang"}
    assert all((embedding.fault == "hang") == (chat == "hang") for chat, embedding in both)
    assert all(embedding.fault is None for chat, embedding in both if chat == "malformed")


def test_faults_of_a_request_are_bounded() -> None:
    options = SimulatorOptions(fail_rate=1.0, batch_expire_rate=1.0, max_faults_per_request=2)
    assert [plan_of(options, "r", 5, n_faults=n).fault for n in (0, 1, 2, 3)] == ["fail", "fail", None, None]
    assert [expires(options, "r", 5, n) for n in (1, 2)] == [True, False]
    assert plan_of(SimulatorOptions(fail_rate=1.0), "r", 5, n_faults=99).fault == "fail"
    assert plan_of(SimulatorOptions(fail_rate=1.0, max_faults_per_request=0), "r", 0).fault is None


def _storm_lengths(options: SimulatorOptions, seconds_a_call: float) -> tuple[list[int], list[LimitExceeded]]:
    """Return how many calls each storm refused, and the first refusal of each."""
    clock = Clock()
    storms = Storms(options, clock)
    lengths, first, in_storm = [], [], False
    for _ in range(3000):
        denied = storms.denies()
        if denied is not None and not in_storm:
            lengths.append(0)
            first.append(denied)
        if denied is not None:
            lengths[-1] += 1
        in_storm = denied is not None
        clock.now += seconds_a_call
    return lengths, first


def test_a_storm_refuses_for_some_calls_or_some_time() -> None:
    options = SimulatorOptions(storm_rate=0.02, seed=1)
    lengths, first = _storm_lengths(options, seconds_a_call=0.1)
    assert len(lengths) > 20
    assert min(lengths) >= 2
    assert max(lengths) <= 30 + 20  # two may follow each other
    tells = [denied.wait_s is not None for denied in first]
    assert {True, False} == set(tells)
    assert all(denied.kind == "requests" and (denied.wait_s or 1.0) <= 3.0 for denied in first)
    assert (lengths, first) == _storm_lengths(options, seconds_a_call=0.1)
    lonely, _ = _storm_lengths(options, seconds_a_call=60.0)
    assert max(lonely) <= 2  # a storm of calls ends by itself


def test_without_a_rate_there_is_no_storm() -> None:
    assert _storm_lengths(SimulatorOptions(), 0.1) == ([], [])


def _tokens(n: int, first: int = 0) -> bytes:
    return b"".join((first if at == 0 else at).to_bytes(TOKEN_BYTES, "little") for at in range(n))


def test_the_prompt_cache_counts_in_steps() -> None:
    cache = PromptCache()
    assert cache.take(prefixes_of("m", _tokens(1300))) == 0
    assert cache.take(prefixes_of("m", _tokens(1300))) == 1280
    assert cache.take(prefixes_of("m", _tokens(1200))) == 1152
    assert cache.take(prefixes_of("m", _tokens(1024))) == 1024
    assert cache.take(prefixes_of("m", _tokens(5000))) == 1280
    assert cache.take(prefixes_of("m", _tokens(5000))) == 4992
    assert cache.take(prefixes_of("m", _tokens(1300, first=7))) == 0
    assert cache.take(prefixes_of("another", _tokens(1300))) == 0
    assert prefixes_of("m", _tokens(1023)) == ()


def test_the_prompt_cache_forgets_what_was_not_used() -> None:
    cache = PromptCache(max_prefixes=4)
    used, unused, new = (prefixes_of(model, _tokens(1300)) for model in ("used", "unused", "new"))
    cache.take(unused[:2])
    cache.take(used[:2])
    cache.take(new[:2])
    assert cache.take(used[:2]) == 1152
    cache.take(new[:1])
    assert cache.take(unused[:2]) == 0
    assert cache.take(new[:1]) == 1024


def test_repeats_are_told_apart_by_how_the_first_ended() -> None:
    memory, counts = ReplyMemory(), CallCounts()
    texts = (digest(b"one"), digest(b"two"))
    answered, abandoned, faulty, all_three = (memory.past(digest(name)) for name in (b"a", b"b", b"c", b"d"))
    memory.answered(answered, texts, counts)
    memory.answered(answered, texts[:1], counts)
    assert (counts.calls, counts.repeats, counts.texts, counts.repeated_texts) == (2, 1, 3, 1)
    late = (digest(b"three"),)
    memory.abandoned(abandoned, late, counts)
    memory.answered(abandoned, late, counts)
    assert (counts.abandoned, counts.repeats_of_abandoned, counts.repeated_texts_of_abandoned) == (1, 1, 1)
    memory.answered(faulty, (), counts, faulty=True)
    memory.answered(faulty, (), counts)
    assert counts.repeats_of_faulty == 1
    memory.answered(all_three, (), counts, faulty=True)
    memory.abandoned(all_three, (), counts)
    memory.answered(all_three, (), counts)
    memory.answered(all_three, (), counts)
    assert (counts.repeats, counts.repeats_of_abandoned, counts.repeats_of_faulty) == (2, 2, 1)


def test_totals_add_up() -> None:
    one, two = CallCounts(calls=1, most_in_flight=3), CallCounts(calls=2, most_in_flight=2)
    one.fault("fail")
    two.fault("fail")
    two.fault("drop")
    found = total([one, two])
    assert (found["calls"], found["most_in_flight"], found["faults"]) == (3, 3, {"fail": 2, "drop": 1})


def test_limits_need_not_be_told() -> None:
    for tells in (True, False):
        gate = SimulatedLimits(SimulatorOptions(rpm=1.0, limit_headers=tells), Clock())
        assert gate.enter(1) is None
        denied = gate.enter(1)
        assert denied is not None
        assert ("x-ratelimit-limit-requests" in gate.headers()) is tells
        assert ("try again in 60.000s" in denied.message) is tells
        busy = SimulatedLimits(SimulatorOptions(max_concurrent=7, limit_headers=tells), Clock())
        said = [busy.enter(1) for _ in range(8)][-1]
        assert said is not None
        assert ("7" in said.message) is tells
