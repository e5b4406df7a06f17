"""The budget of a run in one process: who may call which endpoint when, and how much money is left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from hirag_dist.core.limits import Allowance
from hirag_dist.errors import BudgetReached


class Budget(Protocol):
    """Permission to call. One budget serves the whole cluster."""

    async def acquire(self, endpoint: str, tokens: int, cost_usd: float) -> None:
        """Wait for this call's turn. Raises BudgetReached where it would pass a spending limit."""
        ...

    async def settle(self, endpoint: str, reserved: int, used: int, reserved_usd: float, used_usd: float) -> None:
        """The call has ended."""
        ...

    async def pause(self, endpoint: str, seconds: float) -> None:
        """The endpoint asked to be left alone for a while."""
        ...


class LocalBudget:
    """A budget for one event loop. Waiting calls are served in the order they came."""

    def __init__(
        self,
        allowances: Mapping[str, Allowance],
        max_usd: float | None = None,
        max_tokens: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._allowances = dict(allowances)
        self._turns = {name: asyncio.Lock() for name in allowances}
        self._freed = {name: asyncio.Event() for name in allowances}
        self._max_usd, self._max_tokens = max_usd, max_tokens
        self._usd, self._tokens = 0.0, 0
        self._clock = clock

    async def acquire(self, endpoint: str, tokens: int, cost_usd: float) -> None:
        """Wait for this call's turn."""
        allowance = self._allowances[endpoint]
        async with self._turns[endpoint]:
            while True:
                self._check_money(tokens, cost_usd)
                self._freed[endpoint].clear()
                wait = allowance.wait_s(self._clock())
                if wait == 0.0:
                    allowance.take(self._clock(), tokens)
                    self._usd += cost_usd
                    self._tokens += tokens
                    return
                if wait is None:
                    await self._freed[endpoint].wait()
                else:
                    await asyncio.sleep(wait)

    async def settle(self, endpoint: str, reserved: int, used: int, reserved_usd: float, used_usd: float) -> None:
        """The call has ended."""
        self._allowances[endpoint].settle(reserved, used)
        self._usd += used_usd - reserved_usd
        self._tokens += used - reserved
        self._freed[endpoint].set()

    async def pause(self, endpoint: str, seconds: float) -> None:
        """The endpoint asked to be left alone for a while."""
        self._allowances[endpoint].pause(self._clock() + seconds)

    def _check_money(self, tokens: int, cost_usd: float) -> None:
        if self._max_usd is not None and self._usd + cost_usd > self._max_usd:
            raise BudgetReached(
                f"stopped before --max-usd {self._max_usd:g} was passed (${self._usd:.4f} spent or reserved by this "
                "run); raise it and run again to go on from here"
            )
        if self._max_tokens is not None and self._tokens + tokens > self._max_tokens:
            raise BudgetReached(
                f"stopped before --max-tokens {self._max_tokens} was passed ({self._tokens} used or reserved by this "
                "run); raise it and run again to go on from here"
            )
