"""Log messages about an endpoint's limits: rates that were found, long pauses, refusals without end."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

logger = logging.getLogger(__name__)
_LONG_PAUSE_S = 10.0
_WARN_AFTER_S, _WARN_AGAIN_S = 15.0, 60.0
_LONG_WAIT_S = 30.0  # of the next call for the rate
_QUOTA = "check its quota, or name `rpm`, `tpm` or `max_concurrent` lower where others use it too"


class LimitLog:
    """Logs what is learned of one endpoint."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._paused_until = -math.inf
        self._refusals = 0  # 429s since the last reply
        self._refused_since = 0.0
        self._warn_at = math.inf
        self._wait_warn_at = -math.inf
        self._disbelieved: set[str] = set()

    def on_rates(self, before: tuple[float | None, float | None], after: tuple[float | None, float | None]) -> None:
        """Log rates (requests, tokens per second) that have changed by a fifth."""
        for unit, old, new in zip(("requests", "tokens"), before, after, strict=True):
            if new is not None and (old is None or abs(new - old) > 0.2 * old):
                logger.info("endpoint %s: at most %.0f %s a minute", self._endpoint, new * 60, unit)

    def on_disbelieved(self, limits: Mapping[str, float]) -> None:
        """Log limits a minute that headers named and that are too low to be true, each once."""
        for unit, named in limits.items():
            if unit not in self._disbelieved:
                self._disbelieved.add(unit)
                logger.warning(
                    "endpoint %s names a limit of %g %s a minute in its headers, which is too low to be true and is "
                    "not kept; name `%s` if it is",
                    self._endpoint,
                    named,
                    unit,
                    "rpm" if unit == "requests" else "tpm",
                )

    def on_wait(self, now: float, wait_s: float, limits: tuple[float | None, float | None]) -> None:
        """Log that the next call waits long for its turn within the rates (requests, tokens per second)."""
        if wait_s < _LONG_WAIT_S or now < self._wait_warn_at:
            return
        self._wait_warn_at = now + _WARN_AGAIN_S
        rates = [
            f"{rate * 60:,.4g} {unit} a minute"
            for unit, rate in zip(("requests", "tokens"), limits, strict=True)
            if rate is not None
        ]
        logger.warning(
            "endpoint %s: the next call waits %.0f s for %s; name `rpm` and `tpm` if the endpoint takes more",
            self._endpoint,
            wait_s,
            " and ".join(rates),
        )

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
