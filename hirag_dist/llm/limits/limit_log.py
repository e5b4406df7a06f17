"""Log messages about an endpoint's limits: rates that were found, long pauses, refusals without end."""

from __future__ import annotations

import logging
import math

logger = logging.getLogger(__name__)
_LONG_PAUSE_S = 10.0
_WARN_AFTER_S, _WARN_AGAIN_S = 15.0, 60.0
_QUOTA = "check its quota, or name `rpm`, `tpm` or `max_concurrent` lower where others use it too"


class LimitLog:
    """Logs what is learned of one endpoint."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._paused_until = -math.inf
        self._refusals = 0  # 429s since the last reply
        self._refused_since = 0.0
        self._warn_at = math.inf

    def on_rates(self, before: tuple[float | None, float | None], after: tuple[float | None, float | None]) -> None:
        """Log rates (requests, tokens per second) that have changed by a fifth."""
        for unit, old, new in zip(("requests", "tokens"), before, after, strict=True):
            if new is not None and (old is None or abs(new - old) > 0.2 * old):
                logger.info("endpoint %s: at most %.0f %s a minute", self._endpoint, new * 60, unit)

    def on_report(self, now: float, answered: int, limited: int, pause_s: float) -> None:
        """Log a long pause, and an endpoint that answers nothing but 429."""
        if pause_s > _LONG_PAUSE_S and now > self._paused_until:
            self._paused_until = now + pause_s
            text = "endpoint %s asks to be left alone for %.0f s (429); waiting: %s"
            logger.warning(text, self._endpoint, pause_s, _QUOTA)
        if answered:
            if self._refusals and self._warn_at > self._refused_since + _WARN_AFTER_S:
                logger.warning("endpoint %s answers again", self._endpoint)
            self._refusals, self._warn_at = 0, math.inf
        elif limited:
            if not self._refusals:
                self._refused_since, self._warn_at = now, now + _WARN_AFTER_S
            self._refusals += limited
            if now >= self._warn_at:
                self._warn_at = now + _WARN_AGAIN_S
                logger.warning(
                    "endpoint %s has answered nothing but 429 for %.0f s (%d times); "
                    "going on until `llm.outage_timeout_s`: %s",
                    self._endpoint,
                    now - self._refused_since,
                    self._refusals,
                    _QUOTA,
                )
