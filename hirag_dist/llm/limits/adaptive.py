"""Adaptive limits of one endpoint: concurrency and rates. The clock is passed in; nothing waits here.

A limit that is known is used evenly from the start. One that is not known is searched for: concurrency as TCP does
(slow start, then one more at a time, less after a refusal), a rate by what the endpoint answered before it refused
(additive increase, multiplicative decrease).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

_MINUTE_S = 60.0
_FIRST_RATE, _FASTEST = 25.0, 2000.0  # requests a second: of an unknown endpoint at first, and when no rate is kept
_SHORT_BURST_S = 0.02  # of a rate that is being searched for: a refusal is to meet few calls
_FIRST_WINDOW, _LARGEST_WINDOW = 8.0, 512.0
_LESS_AT_ONCE = 0.9  # of the calls in flight when the endpoint refused one for their number
_LESS_WHEN_SLOW = 0.7
_LESS_RATE = 0.95  # of the rate that an endpoint answered, after it refused a call for its rate
_MIN_RATE = 0.5  # of a rate that was found before, at once: what was answered in a pause says little
_EVIDENCE = 10  # calls answered since a rate was found, before a refusal lowers it again
_MORE, _FASTER, _MAX_MORE = 0.01, 1.5, 0.5  # share by which a step raises a rate, growing while nothing is refused
_STEP_S, _FIRST_STEP_S = 1.0, 0.25  # the second before the first refusal
_STEP_CALLS, _RARE_STEP_S = 10.0, 10.0  # a step has so many replies, or takes so many seconds
_USED = 0.3  # of a rate that calls must use before it is raised
_WINDOWS_A_STEP, _MIN_STEP = 8.0, 50.0  # the window grows by one after 8 full windows and at least 50 replies
_RATE_MEMORY_S = 5.0
_MAX_REFUSALS = 4  # in a minute; after them a rate that was named is not believed any more
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

    Attributes:
        window: calls that may be in flight.
        disbelieved: requests or tokens → the limit a minute that headers named, and that is too low to be true.
    """

    def __init__(self, rpm: float | None, tpm: float | None, max_concurrent: int | None, burst_s: float = 10.0) -> None:
        """Begin with what is known.

        Args:
            rpm, tpm: requests and tokens a minute; None is searched for, unless the endpoint's headers say it.
            max_concurrent: calls at a time; None is searched for.
            burst_s: for how long an allowance that was not used is kept.
        """
        self._ceiling = _LARGEST_WINDOW if max_concurrent is None else float(max_concurrent)
        self.window = min(_FIRST_WINDOW, self._ceiling) if max_concurrent is None else self._ceiling
        self._slow_start = max_concurrent is None
        self._configured = {"requests": rpm, "tokens": tpm}
        self._paces = {
            kind: GcraBucket(None if limit is None else limit / _MINUTE_S, burst_s)
            for kind, limit in self._configured.items()
        }
        self.disbelieved: dict[str, float] = {}
        self._found: set[str] = set()  # rates that were found by trying, which are tried again
        self._burst_s = burst_s
        self._step_s, self._more = _STEP_S, _MORE
        if rpm is None and tpm is None and max_concurrent is None:  # nothing is known: the rate, too, begins low
            self._paces["requests"] = GcraBucket(_FIRST_RATE, _SHORT_BURST_S)
            self._found.add("requests")
            self._step_s, self._more = _FIRST_STEP_S, _MAX_MORE
        self._step_at = -math.inf
        self._used = {"requests": 0.0, "tokens": 0.0}  # answered since then
        self._begun = False
        self._paused_until = -math.inf
        self._recent = {"requests": _DecayingRate(), "tokens": _DecayingRate()}
        self._since_cut = 0  # calls answered
        self._refusals: list[float] = []  # of rates that were thought to be known
        self._cut_at = -math.inf
        self._latency = 0.0
        self._round = _Window()
        self._before: tuple[float, float] | None = None  # of the last round: window, answers a second
        self._usual = (math.inf, math.inf)  # least of all rounds: seconds a reply, seconds a token

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
        for kind, named in (("requests", requests_a_minute), ("tokens", tokens_a_minute)):
            if named is None or named <= 0:
                continue
            if named < _MIN_NAMED[kind]:
                self.disbelieved[kind] = named
                continue
            self._end_first_steps("")
            configured, pace = self._configured[kind], self._paces[kind]
            limit = named if configured is None else min(configured, named)
            if pace.per_s is None:
                pace.begin(now)
            if kind in self._found or pace.per_s is None or abs(pace.per_s * _MINUTE_S - limit) > 0.5:
                pace.change(now, limit / _MINUTE_S)
                self._found.discard(kind)

    def answered(self, now: float, calls: int, tokens: int, latency_s: float, in_flight: int) -> None:
        """Replies came.

        Args:
            latency_s: mean seconds a reply.
            in_flight: the most calls at a time since the last report, these among them.
        """
        for kind, amount in (("requests", calls), ("tokens", tokens)):
            self._recent[kind].add(now, amount)
            self._used[kind] += amount
        self._since_cut += calls
        self._latency += (0.1 if self._latency else 1.0) * (latency_s - self._latency)
        self._raise_rates(now)
        if in_flight >= 0.8 * int(self.window):
            more = calls if self._slow_start else calls / max(_WINDOWS_A_STEP * self.window, _MIN_STEP)
            self.window = min(self.window + more, self._ceiling)
        if self._slow_start:
            self._count_round(now, calls, tokens, latency_s)

    def limited(self, now: float, retry_after_s: float | None, kind: LimitKind, in_flight: int) -> None:
        """The endpoint refused a call for its rate or for the calls in flight."""
        self._slow_start = False
        if kind == "concurrency":
            self.window = max(min(self.window, in_flight - 1.0), 1.0)
            if self._may_cut(now):
                self.window = max(self.window * _LESS_AT_ONCE, 1.0)
            return
        again = now + (max(self._latency, 1.0) if retry_after_s is None else retry_after_s)
        self._paused_until = max(self._paused_until, again)
        self._end_first_steps(kind or "requests")
        for name in ("requests", "tokens") if not kind else (kind,):
            self._lower_rate(now, name, again)

    def slow(self, now: float) -> None:
        """A call timed out."""
        self._slow_start = False
        if self._may_cut(now):
            self.window = max(self.window * _LESS_WHEN_SLOW, 1.0)

    def _end_first_steps(self, refused: str) -> None:
        """Forget the rate of requests with which an unknown endpoint is begun.

        Args:
            refused: the kind of limit that was exceeded; empty where the endpoint's headers name one.
        """
        if self._step_s == _FIRST_STEP_S:
            self._step_s, self._more = _STEP_S, _MORE
            self._found.discard("requests")
            self._paces["requests"] = GcraBucket(None, _SHORT_BURST_S if refused == "requests" else self._burst_s)

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

    def _lower_rate(self, now: float, kind: str, again: float) -> None:
        pace = self._paces[kind]
        self._refusals = [at for at in self._refusals if now - at < _MINUTE_S]
        if pace.per_s is not None and kind not in self._found and len(self._refusals) < _MAX_REFUSALS:
            if self._may_cut(now):  # what was kept from quieter times was too much
                self._refusals.append(now)
            pace.empty(again)
            pace.burst_s = max(pace.burst_s / 2, 1.0 / (pace.per_s or 1.0), 0.2)
            return
        answered = self._recent[kind].per_s(now)
        is_new = pace.per_s is None or self._since_cut >= _EVIDENCE  # else it may be the same refusal again
        if answered > 0 and is_new and (self._may_cut(now) or pace.per_s is None):
            if pace.per_s is None:
                pace.per_s = _LESS_RATE * answered
            else:
                pace.per_s *= max(_LESS_RATE * min(answered / pace.per_s, 1.0), _MIN_RATE)
            pace.begin(now)
            self._found.add(kind)
            self._recent[kind] = _DecayingRate(at=now, since=now)  # what follows is not out of a full bucket
            self._since_cut, self._more = 0, _MORE
            self._step_at, self._used = now, dict.fromkeys(self._used, 0.0)
        pace.empty(again)

    def _raise_rates(self, now: float) -> None:
        """Raise the rates that were found and are used, once a step."""
        seconds = now - self._step_at
        is_rare = self._used["requests"] < _STEP_CALLS and seconds < _RARE_STEP_S
        if seconds < self._step_s or now < self._paused_until or is_rare:
            return
        used, self._step_at, self._used = self._used, now, dict.fromkeys(self._used, 0.0)
        more = self._more
        for kind in tuple(self._found):
            pace, most = self._paces[kind], self._configured[kind]
            if pace.per_s is not None and used[kind] > _USED * pace.per_s * seconds:
                pace.per_s = min(pace.per_s * (1.0 + more), math.inf if most is None else most / _MINUTE_S)
                self._more = min(more * _FASTER, _MAX_MORE)
        if self._step_s == _FIRST_STEP_S and (self._paces["requests"].per_s or 0.0) > _FASTEST:
            self._end_first_steps("")

    def _count_round(self, now: float, calls: int, tokens: int, latency_s: float) -> None:
        """End the slow start where a window of answers is slower than earlier ones and brings no more of them."""
        current = self._round
        if not current.n:
            current.started, current.size = now - latency_s, max(self.window, _FIRST_WINDOW)
        current.n += calls
        current.seconds += latency_s * calls
        current.tokens += tokens
        if current.n < current.size:
            return
        self._round = _Window()
        speed = current.seconds / current.n, current.seconds / max(current.tokens, 1)
        rate = current.n / max(now - current.started, 1e-6)
        before, self._before = self._before, (self.window, rate)
        is_slower = all(new > 1.7 * usual for new, usual in zip(speed, self._usual, strict=True))
        self._usual = min(self._usual[0], speed[0]), min(self._usual[1], speed[1])
        if before is not None and is_slower and rate < 1.2 * before[1]:
            self._slow_start = False
            self.window = max(min(self.window, before[0]), 1.0)
