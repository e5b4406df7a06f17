"""The one place that holds a run's allowances and money, and lends them to workers in blocks.

A worker (`pool.budget.Budget`) holds slots, requests, tokens and money that it was lent, and starts and ends calls on
its own; it comes back for more, and reports, a few dozen times a second at most, whatever the number of calls. So the
limits are exact (what is lent adds up to what is allowed), and the place that holds them is not the bottleneck.

What a worker says of itself is its whole state, never a change of it, so that a report lost or delivered twice does no
harm; a state from before the latest loan is known by its number and not believed where it would free something. The
answer to a question must arrive: a worker that did not get one ends its calls with an error.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hirag_dist.core.limits import Allowance, LimitKind
from hirag_dist.errors import BudgetReached

log = logging.getLogger(__name__)
_BLOCK_S = 0.02  # of an endpoint's rate in one loan
_LOAN_S = 0.25  # after that a loan that was not used goes back
_LONG_PAUSE_S = 10.0
_UNPACED = 256  # requests in a loan where there is no rate


@dataclass(frozen=True, slots=True)
class State:
    """What a worker holds at one endpoint.

    Attributes:
        slot_loan, loan: numbers of the latest loans of slots and of permits that it knows of.
        slots: calls that it may have in flight; busy: those it has.
        used_tokens, used_usd: settled, since it lives.
        held_tokens, held_usd: reserved for calls in flight or not yet spent, of what money was lent.
    """

    slot_loan: int
    loan: int
    slots: int
    busy: int
    used_tokens: int
    used_usd: float
    held_tokens: int
    held_usd: float


@dataclass(frozen=True, slots=True)
class Want:
    """What a worker lacks for the calls that wait: slots, or else permits (requests, tokens, money) for some of them.

    Attributes:
        priority: of the first of them; lower goes first.
        slots: above 0, this asks for slots and nothing else.
        requests, tokens: for as many calls as it could start soon; `first_…` for the first of them alone.
        spend_tokens, spend_usd: to be reserved under a spending limit, likewise.
    """

    priority: int
    slots: int = 0
    requests: int = 0
    tokens: int = 0
    spend_tokens: int = 0
    spend_usd: float = 0.0
    first_requests: int = 0
    first_tokens: int = 0
    first_spend_tokens: int = 0
    first_spend_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Loan:
    """What a worker gets on top of what it holds. `slots` is all that it may hold.

    Attributes:
        valid_s: requests and tokens not used by then go back.
    """

    number: int
    slots: int
    requests: int
    tokens: int
    spend_tokens: int
    spend_usd: float
    valid_s: float


@dataclass(frozen=True, slots=True)
class Order:
    """What a worker is told in return for its report: the slots it should come down to, and how long to pause."""

    slots: int
    pause_s: float


@dataclass(frozen=True, slots=True)
class Events:
    """What happened at an endpoint since the last report.

    Attributes:
        limited: (seconds to wait or None, what was limited, calls in flight here) of each 429.
        requests_a_minute, tokens_a_minute: limits that headers named.
        unused_requests, unused_tokens: of loans that ran out.
        most_busy: calls in flight at a time, at most.
        token_error: tokens used above those reserved, of calls that ended (below zero: less was used).
    """

    answered: int = 0
    answered_tokens: int = 0
    latency_s: float = 0.0
    most_busy: int = 0
    slow: int = 0
    limited: tuple[tuple[float | None, LimitKind, int], ...] = ()
    requests_a_minute: float | None = None
    tokens_a_minute: float | None = None
    unused_requests: int = 0
    unused_tokens: int = 0
    token_error: int = 0


@dataclass(slots=True)
class _Account:
    """A worker as the treasury sees it, at one endpoint."""

    slots_lent: int = 0  # number of its latest loan of slots
    lent: int = 0  # of permits
    known: int = 0  # of the latest loan of permits that it knew of when it last reported
    slots: int = 0
    busy: int = 0
    used_tokens: int = 0
    used_usd: float = 0.0
    held_tokens: int = 0
    held_usd: float = 0.0
    waits: int = 0


@dataclass(slots=True, eq=False)
class _Waiting:
    holder: str
    want: Want
    order: int
    answer: asyncio.Future[Loan]

    def waits(self) -> bool:
        return not (self.answer.done() or self.answer.get_loop().is_closed())


@dataclass(slots=True)
class _Desk:
    name: str
    allowance: Allowance
    told_until: float = -math.inf
    accounts: dict[str, _Account] = field(default_factory=dict)
    waiting: list[_Waiting] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None

    def free_slots(self) -> int:
        return int(self.allowance.window) - sum(account.slots for account in self.accounts.values())

    def busy(self) -> int:
        return sum(account.busy for account in self.accounts.values())

    def fair_share(self) -> int:
        """Return the slots that each worker with something to do may have."""
        active = sum(account.busy > 0 or account.waits > 0 for account in self.accounts.values())
        return max(math.ceil(int(self.allowance.window) / max(active, 1)), 1)


def out_of_usd(max_usd: float, spent: float, next_call: float) -> BudgetReached:
    """Return the error where a call could pass --max-usd."""
    return BudgetReached(
        f"stopped before --max-usd {max_usd:g} was passed (${spent:.4f} spent or set aside by this run, the next call "
        f"may cost ${next_call:.4f}); raise it and run again to go on from here"
    )


def out_of_tokens(max_tokens: int, spent: int, next_call: int) -> BudgetReached:
    """Return the error where a call could pass --max-tokens."""
    return BudgetReached(
        f"stopped before --max-tokens {max_tokens} was passed ({spent} used or set aside by this run, the next call "
        f"may use {next_call}); raise it and run again to go on from here"
    )


class Treasury:
    """Lends what endpoints allow and what the run may spend. Serves one event loop."""

    def __init__(
        self,
        allowances: Mapping[str, Allowance],
        max_usd: float | None = None,
        max_tokens: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._desks = {name: _Desk(name, allowance) for name, allowance in allowances.items()}
        self._max_usd, self._max_tokens = max_usd, max_tokens
        self._gone_tokens, self._gone_usd = 0, 0.0  # used by workers that are no more, or without a loan
        self._clock = clock
        self._n_asked = 0

    async def ask(self, holder: str, endpoint: str, state: State, want: Want, events: Events) -> Loan:
        """Wait for this worker's turn, and lend it what it wants of what there is, at least what its first call needs.

        Raises:
            BudgetReached: its first call could pass a spending limit, and nothing is in flight that may leave room.
        """
        desk = self._desks[endpoint]
        self._note(desk, holder, state, events)
        self._n_asked += 1
        answer: asyncio.Future[Loan] = asyncio.get_running_loop().create_future()
        entry = _Waiting(holder, want, self._n_asked, answer)
        desk.waiting.append(entry)
        desk.accounts[holder].waits += 1
        try:
            self._serve_all()
            return await answer
        finally:
            if entry in desk.waiting:
                desk.waiting.remove(entry)
            account = desk.accounts.get(holder)
            if account is not None:
                account.waits -= 1

    async def tell(self, holder: str, endpoint: str, state: State, events: Events) -> Order:
        """Take a worker's report."""
        desk = self._desks[endpoint]
        self._note(desk, holder, state, events)
        self._serve_all()
        others_wait = any(each.holder != holder and each.want.slots for each in desk.waiting)
        too_many = desk.free_slots() < 0  # the window has become smaller than what was lent
        most = desk.fair_share() if others_wait or too_many else int(desk.allowance.window)
        return Order(most, desk.allowance.pause_s(self._clock()))

    async def leave(self, holder: str) -> None:
        """Take back what a worker held that is no more; what it may have spent counts as spent."""
        for desk in self._desks.values():
            account = desk.accounts.pop(holder, None)
            if account is not None:
                self._gone_tokens += account.used_tokens + account.held_tokens
                self._gone_usd += account.used_usd + account.held_usd
            for each in [each for each in desk.waiting if each.holder == holder]:
                desk.waiting.remove(each)
                if each.waits():
                    each.answer.cancel()
        self._serve_all()

    def charge(self, tokens: int, usd: float) -> None:
        """Count what was spent without a loan."""
        self._gone_tokens += tokens
        self._gone_usd += usd

    def spent(self) -> tuple[int, float]:
        """Return (tokens, US dollars) used or reserved."""
        accounts = [account for desk in self._desks.values() for account in desk.accounts.values()]
        return (
            self._gone_tokens + sum(each.used_tokens + each.held_tokens for each in accounts),
            self._gone_usd + math.fsum(each.used_usd + each.held_usd for each in accounts),
        )

    def _note(self, desk: _Desk, holder: str, state: State, events: Events) -> None:
        account = desk.accounts.setdefault(holder, _Account(slots_lent=state.slot_loan, lent=state.loan))
        account.busy, account.known = state.busy, state.loan
        account.used_tokens, account.used_usd = state.used_tokens, state.used_usd
        if state.slot_loan >= account.slots_lent:  # it knows all that it was lent
            account.slots = state.slots
        if state.loan >= account.lent:
            account.held_tokens, account.held_usd = state.held_tokens, state.held_usd
        now = self._clock()
        allowance = desk.allowance
        others = desk.busy() - state.busy
        before = allowance.limits()
        allowance.heard(now, events.requests_a_minute, events.tokens_a_minute)
        if events.unused_requests or events.unused_tokens or events.token_error:
            allowance.take(now, -events.unused_requests, events.token_error - events.unused_tokens)
        if events.answered:
            allowance.answered(
                now, events.answered, events.answered_tokens, events.latency_s, others + events.most_busy
            )
        for retry_after_s, kind, in_flight in events.limited:
            allowance.limited(now, retry_after_s, kind, in_flight + others)
        for _ in range(events.slow):
            allowance.slow(now)
        self._tell_of(desk, before)

    def _tell_of(self, desk: _Desk, before: tuple[float | None, float | None]) -> None:
        """Log what was learned of an endpoint, and pauses that somebody may wonder at."""
        after = desk.allowance.limits()
        for what, was, now in zip(("requests", "tokens"), before, after, strict=True):
            if now is not None and (was is None or abs(now - was) > 0.2 * was):
                log.info("endpoint %s: at most %.0f %s a minute", desk.name, now * 60, what)
        pause_s = desk.allowance.pause_s(self._clock())
        if pause_s > _LONG_PAUSE_S and self._clock() > desk.told_until:
            desk.told_until = self._clock() + pause_s
            log.warning("endpoint %s asks to be left alone for %.0f s", desk.name, pause_s)

    def _serve_all(self) -> None:
        """Serve every endpoint: money that one gave back may be what another waits for."""
        for desk in self._desks.values():
            if desk.waiting:
                self._serve(desk)

    def _serve(self, desk: _Desk) -> None:
        if desk.timer is not None:
            desk.timer.cancel()
            desk.timer = None
        while True:
            desk.waiting = [each for each in desk.waiting if each.waits()]
            served = False
            for entry in sorted(desk.waiting, key=lambda each: (each.want.priority, each.order)):
                outcome = self._loan(desk, entry)
                if outcome is None:
                    continue
                served = True
                desk.waiting.remove(entry)
                if isinstance(outcome, BudgetReached):
                    entry.answer.set_exception(outcome)
                else:
                    entry.answer.set_result(outcome)
            if not served or not desk.waiting:
                break
        wants = [each.want for each in desk.waiting if not each.want.slots]
        if wants:
            wait_s = desk.allowance.wait_s(self._clock(), 1.0)
            if wait_s > 0:
                loop = asyncio.get_running_loop()
                desk.timer = loop.call_later(min(max(wait_s, 0.001), 60.0), self._serve, desk)

    def _loan(self, desk: _Desk, entry: _Waiting) -> Loan | BudgetReached | None:
        """Return a loan, None where the worker has to wait."""
        want, account = entry.want, desk.accounts[entry.holder]
        if want.slots:
            slots = min(want.slots, desk.free_slots())
            if sum(each.want.slots > 0 for each in desk.waiting) > 1:
                slots = min(slots, desk.fair_share() - account.slots)
            if slots <= 0:
                return None
            account.slots_lent += 1
            account.slots += slots
            return Loan(account.slots_lent, account.slots, 0, 0, 0, 0.0, _LOAN_S)
        broke = self._too_dear(want)
        if broke is not None:
            return broke if self._nothing_in_flight() else None
        now = self._clock()
        closed = desk.allowance.wait_s(now, 1.0) > 0
        if closed and (want.first_requests or want.first_tokens):
            return None
        requests, tokens = (0, 0) if closed else self._block(desk, want, now)
        spend_tokens, spend_usd = self._money(want)
        desk.allowance.take(now, requests, tokens)
        account.lent += 1
        account.held_tokens += spend_tokens
        account.held_usd += spend_usd
        return Loan(account.lent, account.slots, requests, tokens, spend_tokens, spend_usd, _LOAN_S)

    def _block(self, desk: _Desk, want: Want, now: float) -> tuple[int, int]:
        """Return the requests and tokens of a loan: some milliseconds of the endpoint's rate."""
        room_requests, room_tokens = desk.allowance.room(now)
        per_s_requests, per_s_tokens = desk.allowance.limits()
        requests = tokens = 0
        if want.requests:
            if per_s_requests is None:
                requests = max(want.requests, _UNPACED)
            else:
                block = min(max(int(per_s_requests * _BLOCK_S), 1), int(room_requests))
                requests = max(min(want.requests, block), want.first_requests)
        if want.tokens:
            block = int(want.tokens if per_s_tokens is None else min(per_s_tokens * _BLOCK_S, room_tokens))
            tokens = max(min(want.tokens, block), want.first_tokens)
        return requests, tokens

    def _money(self, want: Want) -> tuple[int, float]:
        """Return what of the spending limits is lent: for all the calls that could start, else for the first."""
        tokens, usd = self.spent()
        left_tokens = math.inf if self._max_tokens is None else self._max_tokens - tokens
        left_usd = math.inf if self._max_usd is None else self._max_usd - usd
        if want.spend_tokens <= left_tokens and want.spend_usd <= left_usd:
            return want.spend_tokens, want.spend_usd
        return want.first_spend_tokens, want.first_spend_usd

    def _too_dear(self, want: Want) -> BudgetReached | None:
        tokens, usd = self.spent()
        if self._max_usd is not None and usd + want.first_spend_usd > self._max_usd:
            return out_of_usd(self._max_usd, usd, want.first_spend_usd)
        if self._max_tokens is not None and tokens + want.first_spend_tokens > self._max_tokens:
            return out_of_tokens(self._max_tokens, tokens, want.first_spend_tokens)
        return None

    def _nothing_in_flight(self) -> bool:
        """Whether no call could still turn out cheaper than reserved."""
        accounts = [account for desk in self._desks.values() for account in desk.accounts.values()]
        return not any(account.busy or account.known < account.lent for account in accounts)
