"""Budget of calls that questions cause: calls a minute and dollars a day, of a process and of each caller."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

MINUTE_S, DAY_S = 60.0, 86_400
_MAX_KEPT = 4096  # callers whose use is remembered


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits of one spender; None for none."""

    calls_per_minute: float | None = None
    usd_per_day: float | None = None


@dataclass(slots=True)
class _Use:
    """The times of the calls of the last minute, and the dollars of a day."""

    calls: deque[float] = field(default_factory=deque)
    day: int = -1
    usd: float = 0.0


class CallBudget:
    """Counts calls against the limits of this process and of the caller that causes them."""

    def __init__(self, process: CallLimits, caller: CallLimits, clock: Callable[[], float] = time.time) -> None:
        """Begin with nothing used.

        Args:
            process: of all callers together.
            caller: of each caller, anonymous ones being one.
            clock: seconds since the epoch.
        """
        self._limits = {"this process": process, "this caller": caller}
        self._clock = clock
        self._process = _Use()
        self._callers: dict[str, _Use] = {}
        self._lock = threading.Lock()

    def take(self, caller: str) -> str:
        """Count a call that is about to be made; return why it may not be made, "" where it may."""
        with self._lock:
            now = self._clock()
            uses = self._uses(caller, now)
            for (who, limits), use in zip(self._limits.items(), uses, strict=True):
                if limits.calls_per_minute is not None and len(use.calls) >= limits.calls_per_minute:
                    return f"{who} has had {limits.calls_per_minute:g} reports written within a minute"
                if limits.usd_per_day is not None and use.usd >= limits.usd_per_day:
                    return f"{who} has spent its {limits.usd_per_day:g} dollars of today on reports"
            for use in uses:
                use.calls.append(now)
            return ""

    def give_back(self, caller: str) -> None:
        """Take back a call that was not made."""
        with self._lock:
            for use in self._uses(caller, self._clock()):
                if use.calls:
                    use.calls.pop()

    def spend(self, caller: str, usd: float) -> None:
        """Count what a call has cost; NaN, an unknown price, counts nothing."""
        if math.isnan(usd):
            return
        with self._lock:
            for use in self._uses(caller, self._clock()):
                use.usd += usd

    def _uses(self, caller: str, now: float) -> tuple[_Use, _Use]:
        own = self._callers.pop(caller, None) or _Use()
        self._callers[caller] = own  # the one used last is the last
        while len(self._callers) > _MAX_KEPT:
            del self._callers[next(iter(self._callers))]
        for use in (self._process, own):
            while use.calls and use.calls[0] <= now - MINUTE_S:
                use.calls.popleft()
            if (today := int(now // DAY_S)) != use.day:
                use.day, use.usd = today, 0.0
        return self._process, own
