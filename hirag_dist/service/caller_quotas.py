"""Rate limits, daily quotas and concurrency limits of callers. Each process of a service counts for itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hirag_dist.core.text.normalize import count_noun
from hirag_dist.service.auth.caller_registry import Caller
from hirag_dist.wire.error_status import QuotaExceeded

DAY_S = 86_400

_RETRY_AFTER_S = 0.25  # until one of a caller's requests in progress may have ended


@dataclass(slots=True)
class _Use:
    """Use of a caller's limits.

    Attributes:
        tokens: tokens in the bucket of the rate limit, None before the first request.
        refilled_at: time at which the bucket had them.
        day: days since 1970.
        requests: number of requests of that day.
        in_progress: number of requests in progress.
    """

    tokens: float | None = None
    refilled_at: float = 0.0
    day: int = 0
    requests: int = 0
    in_progress: int = 0


class CallerQuotas:
    """The quotas of all callers of one process. For use in one event loop.

    Args:
        clock: monotonic seconds.
        now: seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, now: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._now = now
        self._uses: dict[str, _Use] = {}

    @contextmanager
    def admitted(self, caller: Caller) -> Iterator[None]:
        """Count one request of a caller while the block lasts.

        Raises:
            QuotaExceeded: the caller has used its quota; with the time of a retry.
        """
        if not caller.limited:
            yield
            return
        use = self._uses.setdefault(caller.name, _Use())
        self._take(caller, use)
        use.in_progress += 1
        try:
            yield
        finally:
            use.in_progress -= 1

    def _take(self, caller: Caller, use: _Use) -> None:
        """Count a request against a caller's limits, or raise if one of them is used up."""
        clock, now = self._clock(), self._now()
        today = int(now // DAY_S)
        if today == use.day - 1:
            today = use.day  # a clock set back over midnight grants no second quota
        requests = use.requests if today == use.day else 0
        if caller.max_concurrent is not None and use.in_progress >= caller.max_concurrent:
            raise QuotaExceeded(
                f"caller {caller.name} has {count_noun(use.in_progress, 'request')} in progress, as many as it may; "
                "wait for one to end",
                "concurrent",
                caller.name,
                _RETRY_AFTER_S,
            )
        if caller.per_day is not None and requests >= caller.per_day:
            wait_s = (today + 1) * DAY_S - now
            raise QuotaExceeded(
                f"caller {caller.name} has used its {count_noun(caller.per_day, 'request')} of today; the day ends at "
                f"midnight UTC, in {wait_s / 3600:.1f} h",
                "quota",
                caller.name,
                wait_s,
            )
        if caller.per_second is not None and caller.burst is not None:
            tokens = caller.burst
            if use.tokens is not None:
                tokens = min(caller.burst, use.tokens + (clock - use.refilled_at) * caller.per_second)
            if tokens < 1:
                wait_s = (1 - tokens) / caller.per_second
                raise QuotaExceeded(
                    f"caller {caller.name} sends more than {caller.per_second:g} requests per second; "
                    f"wait {wait_s:.2g} s",
                    "rate",
                    caller.name,
                    wait_s,
                )
            use.tokens, use.refilled_at = tokens - 1, clock
        use.day, use.requests = today, requests + 1
