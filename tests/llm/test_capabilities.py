"""The probe of structured outputs is made once an index, and is on the bill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hirag_dist.errors import BudgetReached, ModelUnavailable
from hirag_dist.llm.call import PricedModel
from hirag_dist.llm.capabilities import probe_structured_output
from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatReply


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


async def nothing(seconds: float) -> None:
    pass


async def test_a_model_is_probed_once_and_waited_for(tmp_path: Path) -> None:
    model = Probed(n_failures=2)
    target = PricedModel("e", model, price=(1e6, 1e6, 1e6))  # type: ignore[arg-type]
    meter = UsageMeter()
    for number in range(2):
        caller = RetriedCalls(
            RateLimiter(QuotaCoordinator({"e": EndpointLimits(None, None, 4)})), RetryPolicy(), sleep=nothing
        )
        ledger = Ledger(Store(str(tmp_path)))
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
    for share, n_asked in ((1.0, 0), (2.0, 1)):
        coordinator = QuotaCoordinator(
            {"e": EndpointLimits(None, None, 4)}, **{name: most * share for name, most in limits.items()}
        )
        caller = RetriedCalls(RateLimiter(coordinator, spending=True), RetryPolicy())
        if n_asked:
            assert await probe_structured_output(target, None, caller, UsageMeter())
        else:
            with pytest.raises(BudgetReached):
                await probe_structured_output(target, None, caller, UsageMeter())
        await caller.close()
        assert model.n_asked == n_asked
