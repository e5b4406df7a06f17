"""Adaptive limits of one endpoint: concurrency and rates. The clock is passed in; nothing waits here.

A limit that is known is used evenly from the start. One that is not known is searched for: concurrency as TCP does
(slow start, then one more at a time, less after a refusal or when replies take longer without more of them coming),
a rate by what the endpoint answered before it refused (additive increase, multiplicative decrease).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

_MINUTE_S = 60.0
_FIRST_RATE, _NO_RATE = 25.0, 2000.0  # a second; from the second on there is no limit at all
_RAMP, _RAMP_S = 1.5, 0.25  # so much more, every so often
_SHORT_BURST_S = 0.02  # of a rate that is being searched for: a refusal is to meet few calls
_FIRST_WINDOW = 8.0
_LARGEST_WINDOW = 512.0
_LESS_AT_ONCE = 0.9  # of the calls in flight when the endpoint refused one for their number
_LESS_WHEN_SLOW = 0.7
_LESS_RATE = 0.95  # of the rate that an endpoint answered, after it refused a call for its rate
_MIN_RATE = 0.5  # of a rate that was found before, at once: what was answered in a pause says little
_EVIDENCE = 10.0  # calls answered since a rate was found, before a refusal lowers it again
_MORE_RATE, _FASTER, _MAX_MORE = 0.01, 1.5, 0.5  # a step's share more, growing while nothing is refused
_STEP_S, _STEP_CALLS = 1.0, 10.0
_RARE_STEP_S, _RARE_MORE = 10.0, 0.1  # where so many calls take longer: a low rate would delay its own rise
_WINDOWS_A_STEP, _MIN_STEP = 8.0, 50.0  # a slot more after so many windows of answers, and so many answers
_COLLAPSE = 3.0  # times the usual time a reply
_RATE_MEMORY_S = 5.0
_MAX_REFUSALS = 4  # in a minute; after them a rate that was named is not believed any more
_ROUNDS = 10
_MIN_NAMED = {"requests": 1.0, "tokens": 1000.0}  # a minute, in headers; a call has some thousand tokens

LimitKind = Literal["requests", "tokens", "concurrency", ""]


@dataclass(slots=True)
class GcraBucket:
    """Units a second, evenly (the generic cell rate algorithm): what was not used is kept for `burst_s`, no longer.

    Attributes:
        per_s: None without limit.
    """

    per_s: float | None
    burst_s: float
    _next: float = field(default=-math.inf, init=False)  # when all that was taken would be due at an even pace

    def begin(self, now: float) -> None:
        """Start without credit: an endpoint that was quiet before we came may have been so for another's sake."""
        self._next = now + self.burst_s

    def change(self, now: float, per_s: float) -> None:
        """Go on with another rate: what was taken in advance is due at the new one."""
        room = self.room(now)
        if room < 0:
            self._next = now + self.burst_s - room / per_s
        self.per_s = per_s

    def room(self, now: float) -> float:
        """Return the units that may be taken now; below zero while more was taken than was due."""
        if self.per_s is None:
            return math.inf
        return self.per_s * (now + self.burst_s - max(self._next, now))

    def wait_s(self, now: float, units: float = 1.0) -> float:
        """Return how long until so many units may be taken; more than the burst holds wait for the burst alone."""
        if self.per_s is None:
            return 0.0
        missing = min(units, self.per_s * self.burst_s) - self.room(now)
        return max(missing / self.per_s, 0.0) if missing > 1e-9 else 0.0

    def take(self, now: float, units: float) -> None:
        """Take units, or give some back with a number below zero."""
        if self.per_s is not None:
            self._next = max(self._next, now) + units / self.per_s

    def empty(self, until: float) -> None:
        """Let the first unit be due at a time: the endpoint said so."""
        self._next = max(self._next, until + self.burst_s - 1.0 / self.per_s) if self.per_s else self._next


@dataclass(slots=True)
class _DecayingRate:
    """Recent answers per second: an exponentially decaying average."""

    amount: float = 0.0
    at: float = -math.inf
    since: float = math.inf

    def add(self, now: float, amount: float) -> None:
        self.amount = self._left(now) + amount
        self.at = now
        self.since = min(self.since, now)

    def per_s(self, now: float) -> float:
        if not self.amount:
            return 0.0
        share = 1.0 - math.exp(-max(now - self.since, 0.05) / _RATE_MEMORY_S)  # of the memory that is filled
        return self._left(now) / _RATE_MEMORY_S / share

    def _left(self, now: float) -> float:
        return self.amount * math.exp(-(now - self.at) / _RATE_MEMORY_S) if self.amount else 0.0


@dataclass(slots=True)
class _Window:
    """The answers of about one window: their number and their speed."""

    started: float = 0.0
    size: float = 0.0
    n: int = 0
    seconds: float = 0.0
    tokens: int = 0


class EndpointLimits:
    """The limits of one endpoint: a window of concurrent calls, a rate of requests, a rate of tokens.

    Args:
        rpm, tpm: requests and tokens a minute; None is searched for, unless the endpoint's headers say it.
        max_concurrent: calls at a time; None is searched for.
        burst_s: for how long an allowance that was not used is kept.

    Attributes:
        window: calls that may be in flight.
        disbelieved: requests or tokens → the limit a minute that headers named, and that is too low to be true.
    """

    def __init__(self, rpm: float | None, tpm: float | None, max_concurrent: int | None, burst_s: float = 10.0) -> None:
        self._ceiling = _LARGEST_WINDOW if max_concurrent is None else float(max_concurrent)
        self.window = min(_FIRST_WINDOW, self._ceiling) if max_concurrent is None else self._ceiling
        self._slow_start = max_concurrent is None
        self._configured = {"requests": rpm, "tokens": tpm}
        self._paces = {
            "requests": GcraBucket(None if rpm is None else rpm / _MINUTE_S, burst_s),
            "tokens": GcraBucket(None if tpm is None else tpm / _MINUTE_S, burst_s),
        }
        self.disbelieved: dict[str, float] = {}
        self._found = {"requests": False, "tokens": False}  # by trying: such a rate is tried again
        self._ramping = rpm is None and tpm is None and max_concurrent is None
        if self._ramping:  # nothing is known: the rate, too, begins low
            self._paces["requests"].per_s = _FIRST_RATE
            self._paces["requests"].burst_s = _SHORT_BURST_S
        self._burst_s = burst_s
        self._begun = False
        self._paused_until = -math.inf
        self._recent = {"requests": _DecayingRate(), "tokens": _DecayingRate()}
        self._step_at = -math.inf
        self._step_calls = 0.0
        self._since_cut = {"requests": 0.0, "tokens": 0.0}  # calls answered
        self._more = _MORE_RATE
        self._refusals: list[float] = []  # of rates that were thought to be known
        self._cut_at = -math.inf
        self._latency = 0.0
        self._round = _Window()
        self._before: tuple[float, float, float] | None = None  # window, answers a second, seconds a reply
        self._usual: list[tuple[float, float]] = []  # of the last rounds: seconds a reply, seconds a token

    def wait_s(self, now: float, tokens: float = 1.0, requests: float = 1.0) -> float:
        """Return how long calls must wait for their pace; their slots in the window are another matter."""
        self._begin(now)
        return max(
            self._paused_until - now,
            self._paces["requests"].wait_s(now, requests),
            self._paces["tokens"].wait_s(now, tokens),
            0.0,
        )

    def pause_s(self, now: float) -> float:
        """Return how long the endpoint asked to be left alone."""
        return max(self._paused_until - now, 0.0)

    def room(self, now: float) -> tuple[float, float]:
        """Return the (requests, tokens) that may be taken now."""
        self._begin(now)
        return self._paces["requests"].room(now), self._paces["tokens"].room(now)

    def take(self, now: float, requests: float, tokens: float) -> None:
        """Take requests and tokens; numbers below zero give back."""
        self._begin(now)
        self._paces["requests"].take(now, requests)
        self._paces["tokens"].take(now, tokens)

    def limits(self) -> tuple[float | None, float | None]:
        """Return (requests, tokens) a second, None without limit."""
        return self._paces["requests"].per_s, self._paces["tokens"].per_s

    def on_rate_limits(self, now: float, requests_a_minute: float | None, tokens_a_minute: float | None) -> None:
        """The endpoint's headers name its limits; what the configuration says holds where it is lower.

        A limit with which no build would end is not believed: if it is real, 429s show it.
        """
        for kind, said in (("requests", requests_a_minute), ("tokens", tokens_a_minute)):
            configured, pace = self._configured[kind], self._paces[kind]
            if said is None or said <= 0:
                continue
            if said < _MIN_NAMED[kind]:
                self.disbelieved[kind] = said
                continue
            said = said if configured is None else min(configured, said)
            if pace.per_s is None:
                pace.begin(now)
            if self._found[kind] or pace.per_s is None or abs(pace.per_s * _MINUTE_S - said) > 0.5:
                pace.change(now, said / _MINUTE_S)
                self._found[kind] = False
            if self._ramping:
                self._end_ramp()
                pace.per_s, pace.burst_s = said / _MINUTE_S, self._burst_s

    def answered(self, now: float, calls: int, tokens: int, latency_s: float, in_flight: int) -> None:
        """Replies came.

        Args:
            latency_s: mean seconds a reply.
            in_flight: the most calls at a time since the last report, these among them.
        """
        self._recent["requests"].add(now, calls)
        self._recent["tokens"].add(now, tokens)
        for name in self._since_cut:
            self._since_cut[name] += calls
        self._latency += (0.1 if self._latency else 1.0) * (latency_s - self._latency)
        if self._ramping:
            self._ramp_up(now)
        else:
            self._raise_rates(now, calls)
        if in_flight >= 0.8 * int(self.window):
            more = calls if self._slow_start else calls / max(_WINDOWS_A_STEP * self.window, _MIN_STEP)
            self.window = min(self.window + more, self._ceiling)
        self._count_round(now, calls, tokens, latency_s)

    def limited(self, now: float, retry_after_s: float | None, kind: LimitKind, in_flight: int) -> None:
        """The endpoint refused a call for its rate or for the calls in flight."""
        if kind == "concurrency":
            self._slow_start = False
            self.window = max(min(self.window, in_flight - 1.0), 1.0)
            if self._may_cut(now):
                self.window = max(self.window * _LESS_AT_ONCE, 1.0)
            return
        if self._ramping:
            self._end_ramp()
        again = now + (max(self._latency, 1.0) if retry_after_s is None else retry_after_s)
        self._paused_until = max(self._paused_until, again)
        self._slow_start = False
        for name in ("requests", "tokens") if not kind else (kind,):
            self._lower_rate(now, name, again)

    def slow(self, now: float) -> None:
        """A call timed out."""
        self._slow_start = False
        if self._may_cut(now):
            self.window = max(self.window * _LESS_WHEN_SLOW, 1.0)

    def _end_ramp(self) -> None:
        self._ramping = False
        self._paces["requests"].per_s = None

    def _ramp_up(self, now: float) -> None:
        pace = self._paces["requests"]
        if now - self._step_at >= _RAMP_S and pace.per_s is not None:
            self._step_at = now
            if self._recent["requests"].per_s(now) > 0.3 * pace.per_s:
                pace.per_s *= _RAMP
                if pace.per_s > _NO_RATE:
                    self._end_ramp()

    def _begin(self, now: float) -> None:
        if not self._begun:
            self._begun = True
            for pace in self._paces.values():
                pace.begin(now)
                pace.take(now, -min(pace.burst_s, 1.0) * (pace.per_s or 0.0))

    def _may_cut(self, now: float) -> bool:
        """Return whether the last cut is so long ago that this refusal is not its echo."""
        if now - self._cut_at < max(self._latency, 0.2):
            return False
        self._cut_at = now
        return True

    def _lower_rate(self, now: float, name: str, again: float) -> None:
        pace = self._paces[name]
        known = pace.per_s is not None and not self._found[name]
        self._refusals = [at for at in self._refusals if now - at < _MINUTE_S]
        if known and len(self._refusals) < _MAX_REFUSALS:  # what was kept from quieter times was too much
            if self._may_cut(now):
                self._refusals.append(now)
            pace.empty(again)
            pace.burst_s = max(pace.burst_s / 2, 1.0 / (pace.per_s or 1.0), 0.2)
            return
        answered = self._recent[name].per_s(now)
        tried = pace.per_s is None or self._since_cut[name] >= _EVIDENCE  # else it may be the same refusal again
        if answered > 0 and tried and (self._may_cut(now) or pace.per_s is None):
            if pace.per_s is None:
                pace.per_s = _LESS_RATE * answered
            else:
                pace.per_s *= max(_LESS_RATE * min(answered / pace.per_s, 1.0), _MIN_RATE)
            self._since_cut[name] = 0.0
            self._step_at = now
            pace.begin(now)
            self._found[name] = True
            self._recent[name] = _DecayingRate(at=now, since=now)  # what follows is not out of a full bucket
            self._more = _MORE_RATE
        pace.empty(again)

    def _raise_rates(self, now: float, calls: int) -> None:
        self._step_calls += calls
        least_s = _STEP_S if self._step_calls >= _STEP_CALLS else _RARE_STEP_S
        if now - self._step_at < least_s or now < self._paused_until:
            return
        if self._step_calls < _STEP_CALLS:
            self._more = max(self._more, _RARE_MORE)
        self._step_at, self._step_calls = now, 0.0
        raised = False
        for name, pace in self._paces.items():
            used = self._recent[name].per_s(now)
            if self._found[name] and pace.per_s is not None and used > 0.8 * pace.per_s:
                most = self._configured[name]
                pace.per_s = min(pace.per_s * (1.0 + self._more), math.inf if most is None else most / _MINUTE_S)
                raised = True
        if raised:
            self._more = min(self._more * _FASTER, _MAX_MORE)

    def _count_round(self, now: float, calls: int, tokens: int, latency_s: float) -> None:
        """Compare rounds of about a window of answers: slower replies that bring no more of them are too many."""
        current = self._round
        if not current.n:
            current.started, current.size = now - latency_s, max(self.window, _FIRST_WINDOW)
        current.n += calls
        current.seconds += latency_s * calls
        current.tokens += tokens
        if current.n < current.size:
            return
        self._round = _Window()
        each = current.seconds / current.n
        a_token = current.seconds / max(current.tokens, 1)
        rate = current.n / max(now - current.started, 1e-6)
        usual = min((s for s, _ in self._usual), default=each), min((t for _, t in self._usual), default=a_token)
        self._usual = [*self._usual[-_ROUNDS + 1 :], (each, a_token)]
        slower = min(each / usual[0], a_token / usual[1]) if usual[0] > 0 and usual[1] > 0 else 1.0
        before, self._before = self._before, (self.window, rate, each)
        no_gain = before is not None and rate < 1.2 * before[1]
        if self._slow_start and slower > 1.7 and no_gain and before is not None:
            self._slow_start = False
            self.window = max(min(self.window, before[0]), 1.0)
        elif slower > _COLLAPSE and no_gain and self._may_cut(now):
            self.window = max(self.window * _LESS_WHEN_SLOW, 1.0)
